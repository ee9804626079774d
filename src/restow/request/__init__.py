"""Request handling shared by the HTTP layers: context, request info, bodies, responses, limits.

Not here: the actions of requests (`restow.endpoints`), users (`restow.authentication`), and
connections (`restow.httpserver`).
"""
