"""Cost of authentication, authorization, admission and audit."""
