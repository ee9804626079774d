"""Encryption at rest: values are sealed before they are stored and opened when they are read.

A configuration says per resource which keys there are; the first one writes, all of them read. The
forms on disk are those of Kubernetes, so that either can read what the other has written.

Not here: who says which key is written when (`restow.storageversion`), and which file is read when
(`restow.apiserver`).
"""
