"""Hypothesis strategies for CEL expressions: well-typed ones, and near-misses."""

from hypothesis import strategies as st

VARIABLES = {"i": "int", "d": "double", "s": "string", "b": "bool", "l": "list", "m": "map"}
"""Variable names by type: a list of integers, a map of strings to integers."""

TEXTS = st.sampled_from(["''", "'a'", "'abc'", "'a-b'", "'ÄÖ'", '"b"', "r'\\d'", "'\\u00e4'"])
INTS = st.sampled_from(["0", "1", "2", "-1", "7", "9223372036854775807", "-9223372036854775808"])
DOUBLES = st.sampled_from(["0.0", "1.0", "-2.5", "1e3", "0.1"])


def ints(depth: int) -> st.SearchStrategy[str]:
    """Expressions of type int."""
    leaf = st.one_of(INTS, st.just("i"))
    if not depth:
        return leaf
    below = ints(depth - 1)
    return st.one_of(
        leaf,
        st.builds("({} {} {})".format, below, st.sampled_from(["+", "-", "*", "/", "%"]), below),
        st.builds("-({})".format, below),
        st.builds("size({})".format, texts(depth - 1)),
        st.builds("{}.size()".format, lists(depth - 1)),
        st.builds("int({})".format, doubles(depth - 1)),
        st.builds("int({})".format, st.sampled_from(["'12'", "'-3'", "'x'", "''"])),
        st.builds("({} ? {} : {})".format, bools(depth - 1), below, below),
        st.builds("{}[{}]".format, lists(depth - 1), below),
        st.builds("m[{}]".format, texts(depth - 1)),
        st.builds("{}.indexOf({})".format, texts(depth - 1), texts(depth - 1)),
        st.just("m.a"),
    )


def doubles(depth: int) -> st.SearchStrategy[str]:
    """Expressions of type double."""
    leaf = st.one_of(DOUBLES, st.just("d"))
    if not depth:
        return leaf
    below = doubles(depth - 1)
    return st.one_of(
        leaf,
        st.builds("({} {} {})".format, below, st.sampled_from(["+", "-", "*", "/"]), below),
        st.builds("double({})".format, ints(depth - 1)),
        st.builds("double({})".format, st.sampled_from(["'1.5'", "'x'", "'1e2'"])),
    )


def texts(depth: int) -> st.SearchStrategy[str]:
    """Expressions of type string."""
    leaf = st.one_of(TEXTS, st.just("s"))
    if not depth:
        return leaf
    below = texts(depth - 1)
    return st.one_of(
        leaf,
        st.builds("({} + {})".format, below, below),
        st.builds("string({})".format, ints(depth - 1)),
        st.builds("string({})".format, bools(depth - 1)),
        st.builds("({} ? {} : {})".format, bools(depth - 1), below, below),
        st.builds("{}.replace({}, {})".format, below, below, below),
        st.builds("{}.substring({})".format, below, ints(depth - 1)),
        st.builds("{}.charAt({})".format, below, ints(depth - 1)),
        st.builds("{}.{}()".format, below, st.sampled_from(["lowerAscii", "upperAscii", "trim"])),
        st.builds("{}.split({}).join({})".format, below, below, below),
    )


def lists(depth: int) -> st.SearchStrategy[str]:
    """Expressions of type list of int."""
    leaf = st.sampled_from(["l", "[1]", "[1, 2, 3]", "[i, 2]"])
    if not depth:
        return leaf
    below = lists(depth - 1)
    item = ints(depth - 1)
    return st.one_of(
        leaf,
        st.builds("({} + {})".format, below, below),
        st.builds("[{}, {}]".format, item, item),
        st.builds("{}.filter(x, x > {})".format, below, item),
        st.builds("{}.map(x, x + {})".format, below, item),
        st.builds("{}.map(x, x != 2, x * {})".format, below, item),
    )


def bools(depth: int) -> st.SearchStrategy[str]:
    """Expressions of type bool."""
    leaf = st.sampled_from(["true", "false", "b", "has(m.a)", "has(m.z)"])
    if not depth:
        return leaf
    below = bools(depth - 1)
    compare = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
    return st.one_of(
        leaf,
        st.builds("({} {} {})".format, below, st.sampled_from(["&&", "||"]), below),
        st.builds("!{}".format, below),
        st.builds("({} {} {})".format, ints(depth - 1), compare, ints(depth - 1)),
        st.builds("({} {} {})".format, texts(depth - 1), compare, texts(depth - 1)),
        st.builds("({} {} {})".format, doubles(depth - 1), compare, doubles(depth - 1)),
        st.builds("({} == {})".format, lists(depth - 1), lists(depth - 1)),
        st.builds("({} in {})".format, ints(depth - 1), lists(depth - 1)),
        st.builds("({} in m)".format, texts(depth - 1)),
        st.builds("{}.all(x, x < {})".format, lists(depth - 1), ints(depth - 1)),
        st.builds("{}.exists(x, x < {})".format, lists(depth - 1), ints(depth - 1)),
        st.builds("{}.exists_one(x, x == {})".format, lists(depth - 1), ints(depth - 1)),
        st.builds("m.all(k, m[k] > {})".format, ints(depth - 1)),
        st.builds("{}.all(x, x / ({}) > 0)".format, lists(depth - 1), ints(depth - 1)),
        st.builds(
            "{}.{}({})".format,
            texts(depth - 1),
            st.sampled_from(["contains", "startsWith", "endsWith"]),
            texts(depth - 1),
        ),
        st.builds(
            "{}.matches({})".format,
            texts(depth - 1),
            st.sampled_from(["'^a'", "'b$'", "r'[a-c]+'", "'.*-.*'"]),
        ),
        st.builds("(type({}) == int)".format, ints(depth - 1)),
    )


PIECES = (
    *("self", "oldSelf", "self.a", "self.b", "x", "y", "true", "null", "for", "namespace"),
    *(".", "?.", "[", "]", "(", ")", "{", "}", ",", ":", "?", "//c", "\\", "`", "'", '"', "\n"),
    *("'a'", '"b"', "r'c'", "b'd'", "1", "2u", "3.5", "0x1F", "[1,2]"),
    *("-", "!", "&&", "||", "==", "in", "+", "*", "/", "%", "<"),
    *("has", "size", "all", "exists", "map", "optMap", ".orValue(", "matches(", "timestamp("),
    *("duration('1s')", "quantity('1k')", "ip('::1')"),
)


def near_expressions() -> st.SearchStrategy[str]:
    """Strings of CEL tokens, few of which are valid expressions."""
    pieces = st.sampled_from(PIECES)
    return st.one_of(
        st.lists(pieces, max_size=25).map("".join),
        st.lists(pieces, max_size=25).map(" ".join),
        st.text(max_size=40),
    )
