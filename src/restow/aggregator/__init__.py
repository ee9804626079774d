"""Aggregated APIs: groups that other servers serve, reached through this one.

An APIService says who serves a group in a version. Requests for it are authenticated and authorised
here and passed on, with the user in headers that only this server may set. Their documents are
merged into ours. A backend that is slow, gone or wrong is noticed by its own requests only.

Not here: what an aggregated server does itself (`restow.apiserver`), and who keeps the APIServices
of our own groups (`restow.controllers`).
"""
