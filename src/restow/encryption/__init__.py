"""Encryption at rest: encrypts values before they are stored, and decrypts them when read.

A configuration lists the keys per resource; the first one encrypts, all of them decrypt. The stored
formats are those of Kubernetes, so that each can read what the other has written.

Not here: which key is used when (`restow.storageversion`), and which file is read when
(`restow.apiserver`).
"""
