"""Aggregated APIs: API groups of other servers, accessible through this one.

An APIService names the server of a group version. Requests for it are authenticated and authorized
here and forwarded, with the user in headers that only this server may set. Its documents are merged
into those of this server. A slow, stopped or broken backend affects its own requests only.

Not here: the aggregated servers themselves (`restow.apiserver`), and the APIServices of this
server's own groups (`restow.controllers`).
"""
