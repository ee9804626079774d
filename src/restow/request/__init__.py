"""What every layer of the HTTP side shares: context, request info, bodies, responses, limits.

Not here: what is done with a request (`restow.endpoints`), who sent it (`restow.authentication`),
and the connection by which it came (`restow.httpserver`).
"""
