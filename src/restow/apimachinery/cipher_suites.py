"""The cipher suites that servers and clients negotiate: only those with authenticated encryption.

Suites of TLS 1.2 with CBC have a history of padding attacks, and OpenSSL's defaults contain some.
Not here: TLS versions, which the contexts themselves set.
"""

from __future__ import annotations

from typing import Final

# IANA names, as in Kubernetes, and those of OpenSSL. The suites of TLS 1.3 cannot be disabled.
CIPHER_SUITES: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_AES_128_GCM_SHA256": "",
    "TLS_AES_256_GCM_SHA384": "",
    "TLS_CHACHA20_POLY1305_SHA256": "",
}

DEFAULT_CIPHERS: Final = ":".join(filter(None, CIPHER_SUITES.values()))
"""All of TLS 1.2, in OpenSSL's syntax."""
