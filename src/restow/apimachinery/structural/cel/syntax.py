"""Parser of CEL: source to syntax tree.

Not here: names and types (`checker`), and evaluation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from restow.apimachinery.structural.cel.keywords import RESERVED
from restow.apimachinery.structural.cel.nodes import (
    Call,
    CelNode,
    Conditional,
    Ident,
    ListLiteral,
    Literal,
    Logic,
    Macro,
    MapLiteral,
    Select,
)
from restow.apimachinery.structural.cel.values import UINT64_MAX, Uint
from restow.apimachinery.type_values import INT64_MAX, INT64_MIN

EXPRESSION_LENGTH_MAX: Final = 100_000
# Each level takes a few Python frames, here and in every walk over an expression.
DEPTH_MAX: Final = 60

LINE_SHOWN_MAX: Final = 200
"""From longer lines, only the part around the error is shown."""


class SyntaxProblem(Exception):
    """A syntax error, and its position."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.message = message
        self.at = at


def located_messages(source: str, problems: list[tuple[int, str]]) -> str:
    """Format errors with their source lines, as Kubernetes does."""
    formatted = []
    for at, message in problems:
        line_number = source.count("\n", 0, at) + 1
        begin = source.rfind("\n", 0, at) + 1
        line = source[begin:].split("\n", 1)[0]
        column = at - begin
        position = f"{line_number}:{column + 1}"
        if len(line) > LINE_SHOWN_MAX:
            first = max(0, column - LINE_SHOWN_MAX // 2)
            line, column = line[first : first + LINE_SHOWN_MAX], column - first
        formatted.append(f"ERROR: <input>:{position}: {message}\n | {line}\n | {'.' * column}^")
    return "\n".join(formatted)


# Macros by name and number of arguments: how many arguments are variable names.
_MACROS: Final[dict[tuple[str, int], int]] = {
    ("all", 2): 1,
    ("exists", 2): 1,
    ("exists_one", 2): 1,
    ("existsOne", 2): 1,
    ("map", 2): 1,
    ("map", 3): 1,
    ("filter", 2): 1,
    ("all", 3): 2,
    ("exists", 3): 2,
    ("existsOne", 3): 2,
    ("transformList", 3): 2,
    ("transformList", 4): 2,
    ("transformMap", 3): 2,
    ("transformMap", 4): 2,
    ("transformMapEntry", 3): 2,
    ("transformMapEntry", 4): 2,
    ("optMap", 2): 1,
    ("optFlatMap", 2): 1,
    ("sortBy", 2): 1,
}

_TOKEN: Final = re.compile(
    r"""
    (?P<space>[\t\ \r\n\f]+|//[^\n]*)
    |(?P<text>(?:[rR][bB]|[bB][rR]|[rR]|[bB])?(?:\"\"\"|'''|"|'))
    |(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<int>0x[0-9a-fA-F]+[uU]?|[0-9]+[uU]?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<quoted>`[A-Za-z0-9_.\-/ ]+`)
    |(?P<op>==|!=|<=|>=|&&|\|\||[<>\[\]{}().,\-!?:+*/%])
    """,
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(
    r"\\(?:([abfnrtv\"'\\?`])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2}))"
)
_SIMPLE: Final = dict(zip("abfnrtv\"'\\?`", "\a\b\f\n\r\t\v\"'\\?`", strict=True))


@dataclass(slots=True, frozen=True)
class _Token:
    kind: str
    text: str
    at: int
    value: Any = None


def _tokens(source: str) -> list[_Token]:
    tokens = []
    at = 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if match is None:
            message = f"Syntax error: token recognition error at: '{source[at]}'"
            raise SyntaxProblem(message, at)
        kind = match.lastgroup or ""
        if kind == "text":
            token = _text_token(source, at, match.group())
            tokens.append(token)
            at += len(token.text)
            continue
        if kind != "space":
            tokens.append(_Token(kind, match.group(), at))
        at = match.end()
    tokens.append(_Token("end", "<EOF>", len(source)))
    return tokens


def _text_token(source: str, at: int, opening: str) -> _Token:
    prefix = opening.rstrip("\"'").lower()
    quote = opening[len(prefix) :]
    is_raw, is_bytes = "r" in prefix, "b" in prefix
    begin = at + len(opening)
    end = begin
    while True:
        if end >= len(source) or (len(quote) == 1 and source[end] in "\n\r"):
            message = f"Syntax error: token recognition error at: '{source[at : at + 20]}'"
            raise SyntaxProblem(message, at)
        if source.startswith(quote, end):
            break
        end += 2 if source[end] == "\\" and not is_raw else 1
    body = source[begin:end]
    value: Any = body if is_raw else _unescape(body, at, is_bytes=is_bytes)
    if is_bytes and isinstance(value, str):
        value = value.encode(errors="surrogatepass")
    return _Token("bytes" if is_bytes else "string", source[at : end + len(quote)], at, value)


def _unescape(body: str, at: int, *, is_bytes: bool) -> str | bytes:
    if "\\" not in body:
        return body
    parts: list[str] = []
    raw = bytearray()
    position = 0

    def add(text: str, byte: int | None = None) -> None:
        if not is_bytes:
            parts.append(text)
        elif byte is not None:
            raw.append(byte)
        else:
            raw.extend(text.encode(errors="surrogatepass"))

    while position < len(body):
        if body[position] != "\\":
            add(body[position])
            position += 1
            continue
        match = _ESCAPE.match(body, position)
        if match is None:
            raise SyntaxProblem("Syntax error: invalid escape sequence", at)
        simple, hexadecimal, short, long, octal = match.groups()
        if simple:
            add(_SIMPLE[simple])
        else:
            code = int(octal, 8) if octal else int(hexadecimal or short or long, 16)
            if code > 0x10FFFF or 0xD800 <= code < 0xE000:
                raise SyntaxProblem("Syntax error: invalid unicode code point", at)
            add(chr(code), None if short or long else code)
        position = match.end()
    return bytes(raw) if is_bytes else "".join(parts)


_LEVELS: Final = {
    "<": 1,
    "<=": 1,
    ">": 1,
    ">=": 1,
    "==": 1,
    "!=": 1,
    "in": 1,
    "+": 2,
    "-": 2,
    "*": 3,
    "/": 3,
    "%": 3,
}


def parse(source: str) -> CelNode:
    """Parse an expression; SyntaxProblem if it is invalid."""
    if len(source) > EXPRESSION_LENGTH_MAX:
        why = (
            f"expression code point size exceeds limit: size: {len(source)}, "
            f"limit {EXPRESSION_LENGTH_MAX}"
        )
        raise SyntaxProblem(why, 0)
    parser = _Parser(_tokens(source))
    node = parser.expression(0)
    parser.expect("<EOF>")
    return node


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens = tokens
        self.position = 0

    @property
    def token(self) -> _Token:
        return self.tokens[self.position]

    def take(self) -> _Token:
        token = self.tokens[self.position]
        self.position += 1
        return token

    def accept(self, text: str) -> bool:
        if self.token.text == text and self.token.kind in ("op", "name", "end"):
            self.position += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.unexpected(f"'{text}'")

    def unexpected(self, wanted: str) -> SyntaxProblem:
        token = self.token
        message = f"Syntax error: mismatched input '{token.text}' expecting {wanted}"
        return SyntaxProblem(message, token.at)

    def sized(self, node: CelNode, *below: CelNode) -> CelNode:
        node.depth = 1 + max((each.depth for each in below), default=0)
        if node.depth > DEPTH_MAX:
            message = f"expression recursion limit exceeded: {DEPTH_MAX}"
            raise SyntaxProblem(message, node.at)
        return node

    def expression(self, nesting: int) -> CelNode:
        if nesting > DEPTH_MAX:
            message = f"expression recursion limit exceeded: {DEPTH_MAX}"
            raise SyntaxProblem(message, self.token.at)
        condition = self.chain(nesting, is_and=False)
        if self.token.text != "?" or self.token.kind != "op":
            return condition
        at = self.take().at
        yes = self.chain(nesting + 1, is_and=False)
        self.expect(":")
        no = self.expression(nesting + 1)
        return self.sized(Conditional(condition, yes, no, at=at), condition, yes, no)

    def chain(self, nesting: int, *, is_and: bool) -> CelNode:
        def operand() -> CelNode:
            return self.binary(nesting, 1) if is_and else self.chain(nesting, is_and=True)

        sign = "&&" if is_and else "||"
        first = operand()
        if self.token.text != sign:
            return first
        at = self.token.at
        terms = [first]
        while self.accept(sign):
            terms.append(operand())
        return self.sized(Logic(is_and, terms, at=at), *terms)

    def binary(self, nesting: int, level: int) -> CelNode:
        left = self.unary(nesting)
        while True:
            token = self.token
            found = _LEVELS.get(token.text, 0) if token.kind in ("op", "name") else 0
            if found < level:
                return left
            self.position += 1
            right = self.binary(nesting, found + 1)
            name = "@in" if token.text == "in" else f"_{token.text}_"
            left = self.sized(Call(name, None, [left, right], at=token.at), left, right)

    def unary(self, nesting: int) -> CelNode:
        token = self.token
        if token.kind == "op" and token.text in ("!", "-"):
            self.position += 1
            if token.text == "-" and self.token.kind in ("int", "float"):
                return self.members(self.number(self.take(), sign="-", at=token.at), nesting)
            count = 1
            while self.accept(token.text):
                count += 1
            operand = self.members(self.primary(nesting), nesting)
            if count % 2 == 0:
                return operand
            name = f"{token.text}_"
            return self.sized(Call(name, None, [operand], at=token.at), operand)
        return self.members(self.primary(nesting), nesting)

    def members(self, node: CelNode, nesting: int) -> CelNode:
        while True:
            at = self.token.at
            if self.token.kind != "op":
                return node
            if self.accept("["):
                is_optional = self.accept("?")
                index = self.expression(nesting + 1)
                self.expect("]")
                name = "_[?_]" if is_optional else "_[_]"
                node = self.sized(Call(name, None, [node, index], at=at), node, index)
            elif self.accept("."):
                is_optional = self.accept("?")
                token = self.take()
                if token.kind not in ("name", "quoted"):
                    self.position -= 1
                    raise self.unexpected("IDENTIFIER")
                name = token.text.strip("`")
                if token.kind == "name" and not is_optional and self.token.text == "(":
                    node = self.member_call(node, name, nesting)
                else:
                    node = self.sized(Select(node, name, is_optional=is_optional, at=at), node)
            else:
                return node

    def member_call(self, target: CelNode, name: str, nesting: int) -> CelNode:
        at = self.token.at
        args = self.arguments(nesting)
        names = _MACROS.get((name, len(args)))
        if names is None:
            return self.sized(Call(name, target, args, at=at), target, *args)
        variables = []
        for arg in args[:names]:
            if not isinstance(arg, Ident):
                raise SyntaxProblem("argument must be a simple name", arg.at)
            if arg.name in variables:
                raise SyntaxProblem("duplicate variable name", arg.at)
            if arg.name in ("__result__", "@result"):
                raise SyntaxProblem("iteration variable overwrites accumulator variable", arg.at)
            variables.append(arg.name)
        kind = "exists_one" if name == "existsOne" else name
        rest = args[names:]
        if kind == "transformMapEntry" and not isinstance(rest[-1], MapLiteral):
            raise SyntaxProblem("argument must be a map literal", rest[-1].at)
        node = Macro(kind, target, tuple(variables), rest, at=at)
        # A loop is deeper than its syntax: two frames for itself, and its variables.
        return self.sized(node, target, *rest)

    def arguments(self, nesting: int) -> list[CelNode]:
        self.expect("(")
        args: list[CelNode] = []
        if self.accept(")"):
            return args
        args.append(self.expression(nesting + 1))
        while self.accept(","):
            args.append(self.expression(nesting + 1))
        self.expect(")")
        return args

    def primary(self, nesting: int) -> CelNode:
        token = self.take()
        match token.kind:
            case "int" | "float":
                return self.number(token, sign="", at=token.at)
            case "string" | "bytes":
                return Literal(token.value, at=token.at)
            case "name":
                return self.named(token, nesting)
            case "op":
                return self.bracketed(token, nesting)
        self.position -= 1
        raise self.unexpected("an expression")

    def named(self, token: _Token, nesting: int) -> CelNode:
        match token.text:
            case "true":
                return Literal(True, at=token.at)
            case "false":
                return Literal(False, at=token.at)
            case "null":
                return Literal(None, at=token.at)
            case "in":
                self.position -= 1
                raise self.unexpected("an expression")
        if token.text in RESERVED:
            message = f"Syntax error: reserved identifier: {token.text}"
            raise SyntaxProblem(message, token.at)
        if self.token.text == "(" and self.token.kind == "op":
            at = self.token.at
            args = self.arguments(nesting)
            if token.text == "has":
                return self.has(args, at)
            return self.sized(Call(token.text, None, args, at=at), *args)
        if self.token.text == "{" and self.token.kind == "op":
            raise SyntaxProblem(f"undeclared reference to '{token.text}'", token.at)
        return Ident(token.text, at=token.at)

    def has(self, args: list[CelNode], at: int) -> CelNode:
        if len(args) != 1 or not isinstance(args[0], Select) or args[0].is_optional:
            raise SyntaxProblem("invalid argument to has() macro", at)
        select = args[0]
        return self.sized(Select(select.operand, select.name, is_test=True, at=at), select.operand)

    def bracketed(self, token: _Token, nesting: int) -> CelNode:
        match token.text:
            case "(":
                inner = self.expression(nesting + 1)
                self.expect(")")
                return inner
            case "[":
                return self.list_of(token.at, nesting)
            case "{":
                return self.map_of(token.at, nesting)
            case ".":
                name = self.take()
                if name.kind == "name":
                    return self.named(name, nesting)
                self.position -= 1
        self.position -= 1
        raise self.unexpected("an expression")

    def list_of(self, at: int, nesting: int) -> CelNode:
        items: list[CelNode] = []
        optional = set()
        while not self.accept("]"):
            if self.accept("?"):
                optional.add(len(items))
            items.append(self.expression(nesting + 1))
            if not self.accept(","):
                self.expect("]")
                break
        return self.sized(ListLiteral(items, frozenset(optional), at=at), *items)

    def map_of(self, at: int, nesting: int) -> CelNode:
        entries: list[tuple[CelNode, CelNode, bool]] = []
        while not self.accept("}"):
            is_optional = self.accept("?")
            key = self.expression(nesting + 1)
            self.expect(":")
            entries.append((key, self.expression(nesting + 1), is_optional))
            if not self.accept(","):
                self.expect("}")
                break
        below = [node for key, value, _ in entries for node in (key, value)]
        return self.sized(MapLiteral(entries, at=at), *below)

    def number(self, token: _Token, *, sign: str, at: int) -> CelNode:
        if token.kind == "float":
            return Literal(float(sign + token.text), at=at)
        text = token.text.lower()
        is_unsigned = text.endswith("u")
        digits = text.rstrip("u")
        # Python rejects integers with thousands of digits, and so does this parser.
        number = int(digits, 16 if digits.startswith("0x") else 10) if len(digits) < 100 else 2**99
        if sign:
            number = -number
        if is_unsigned:
            if sign or number > UINT64_MAX:
                raise SyntaxProblem("invalid uint literal", at)
            return Literal(Uint(number), at=at)
        if not INT64_MIN <= number <= INT64_MAX:
            raise SyntaxProblem("invalid int literal", at)
        return Literal(number, at=at)
