"""Which proxy is used: `proxy-url`, and the environment by the rules of Go."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from restow.client import ConfigInvalid, read_kubeconfig
from restow.client.proxies import ProxyAddress, environment_proxy, read_proxy

PROXY = "http://p:3128"


def selected(environ: dict[str, str], server: str = "https://api.example.com:6443") -> str:
    scheme, _, rest = server.partition("://")
    host, _, port = rest.rpartition(":")
    found = environment_proxy(environ, scheme=scheme, host=host.strip("[]"), port=int(port))
    return str(found)


ADDRESSES = {
    "http://p": ("http", "p", 80, "", ""),
    "https://p": ("https", "p", 443, "", ""),
    "socks5://p": ("socks5", "p", 1080, "", ""),
    "socks5h://p:9": ("socks5h", "p", 9, "", ""),
    "http://[::1]:8080/": ("http", "::1", 8080, "", ""),
    "http://a%40b:c%2Fd@p:1": ("http", "p", 1, "a@b", "c/d"),
}


@pytest.mark.parametrize("text", ADDRESSES)
def test_addresses(text: str) -> None:
    """A proxy has a scheme, a host, by default the port of the scheme, and credentials."""
    scheme, host, port, username, password = ADDRESSES[text]
    expected = ProxyAddress(
        scheme=scheme, host=host, port=port, username=username, password=password, source="s"
    )
    assert read_proxy(text, source="s") == expected
    assert "c/d" not in repr(expected) + str(expected)


@pytest.mark.parametrize("text", ["p:3128", "http://", "http://p:0", "http://p:x", "http://a b"])
def test_addresses_that_are_none(text: str) -> None:
    """Other texts are refused by name."""
    with pytest.raises(ConfigInvalid, match=r"^s(:| is not a proxy address)"):
        read_proxy(text, source="s")


VARIABLES: dict[str, tuple[dict[str, str], str]] = {
    "none": ({}, "None"),
    "upper": ({"HTTPS_PROXY": PROXY, "https_proxy": "http://q:1"}, PROXY),
    "lower": ({"HTTPS_PROXY": "", "https_proxy": PROXY}, PROXY),
    "without-scheme": ({"HTTPS_PROXY": "p:3128"}, PROXY),
    "other-scheme": ({"HTTP_PROXY": PROXY, "ALL_PROXY": PROXY}, "None"),
}


@pytest.mark.parametrize("case", VARIABLES)
def test_variables(case: str) -> None:
    """HTTPS_PROXY applies to https servers; upper case wins; ALL_PROXY has no effect."""
    environ, expected = VARIABLES[case]
    assert selected(environ) == expected


def test_plain_http() -> None:
    """HTTP_PROXY applies to http servers, but not in a CGI program, where its client sets it."""
    environ = {"HTTP_PROXY": PROXY}
    assert selected(environ, "http://h:8080") == PROXY
    assert selected(environ | {"REQUEST_METHOD": "GET"}, "http://h:8080") == "None"


EXCLUDED = {
    "*": True,
    "example.com": True,
    "EXAMPLE.com": True,
    "api.example.com": True,
    ".example.com": True,
    "*.example.com": True,
    "example.com:6443": True,
    "other, example.com": True,
    "example.com:443": False,
    "ample.com": False,
    ".api.example.com": False,
    "com.": False,
    "": False,
}


@pytest.mark.parametrize("rules", EXCLUDED)
def test_excluded_names(rules: str) -> None:
    """NO_PROXY lists domains with their subdomains, or only these after a dot."""
    environ = {"HTTPS_PROXY": PROXY, "NO_PROXY": rules}
    assert (selected(environ) == "None") is EXCLUDED[rules]


@pytest.mark.parametrize(
    ("rules", "server", "is_excluded"),
    [
        ("10.0.0.0/8", "https://10.1.2.3:6443", True),
        ("10.0.0.0/8", "https://11.1.2.3:6443", False),
        ("10.1.2.3", "https://10.1.2.3:6443", True),
        ("10.1.2.3:6443", "https://10.1.2.3:6443", True),
        ("10.1.2.3:443", "https://10.1.2.3:6443", False),
        ("fd00::/8", "https://[fd00::1]:6443", True),
        ("[fd00::1]:6443", "https://[fd00::1]:6443", True),
        ("3", "https://10.1.2.3:6443", False),
        ("10.0.0.0/99", "https://10.1.2.3:6443", False),
        ("", "https://127.0.0.1:6443", True),
        ("", "https://localhost:6443", True),
        ("", "https://[::1]:6443", True),
    ],
)
def test_excluded_addresses(rules: str, server: str, *, is_excluded: bool) -> None:
    """NO_PROXY lists addresses and networks; localhost is never proxied by the environment."""
    environ = {"HTTPS_PROXY": PROXY, "NO_PROXY": rules}
    assert (selected(environ, server) == "None") is is_excluded


def test_proxy_url_has_precedence(tmp_path: Path) -> None:
    """`proxy-url` applies despite NO_PROXY; otherwise the environment does."""
    path = tmp_path / "config"
    cluster = {"server": "https://localhost:1", "proxy-url": "socks5://s"}
    value = {"clusters": [{"name": "c", "cluster": cluster}], "contexts": [], "current-context": ""}
    value["contexts"] = [{"name": "x", "context": {"cluster": "c"}}]
    path.write_text(yaml.safe_dump(value))
    environ = {"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}
    config = read_kubeconfig([path], context="x", environ=environ)
    assert str(config.proxy) == "socks5://s:1080"
    assert "cluster 'c': proxy-url" in str(config.proxy and config.proxy.source)
    del cluster["proxy-url"]
    cluster["server"] = "https://h:1"
    path.write_text(yaml.safe_dump(value))
    assert read_kubeconfig([path], context="x", environ=environ).proxy is None
    found = read_kubeconfig([path], context="x", environ={"HTTPS_PROXY": PROXY}).proxy
    assert (str(found), found and found.source) == (PROXY, "$HTTPS_PROXY")
