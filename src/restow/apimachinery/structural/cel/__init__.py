"""The expression language of rules in schemas: reading, types, cost, evaluation, rules.

The language is CEL with the functions that Kubernetes adds. It is written here rather than bound:
rules are checked against schemas, their cost is bounded before and while they run, and they read
JSON values as they are, none of which the libraries for Python do.

Not here: schemas themselves, clocks, and anything that reads files or talks to a server. Time
zones come from Python's tables.
"""

from restow.apimachinery.structural.cel.budget import (
    CALL_COST_MAX,
    OBJECT_COST_MAX,
    RULE_COST_MAX,
    SCHEMA_COST_MAX,
)
from restow.apimachinery.structural.cel.declarations import declare
from restow.apimachinery.structural.cel.environment import RULES, Environment
from restow.apimachinery.structural.cel.functions import Overload
from restow.apimachinery.structural.cel.program import (
    CompileError,
    EvaluationOutcome,
    Program,
    compile_expression,
)
from restow.apimachinery.structural.cel.rules import RuleNode, RuleResult, compile_rules, run_rules
from restow.apimachinery.structural.cel.types import Declared
from restow.apimachinery.structural.cel.values import CelError

__all__ = [
    "CALL_COST_MAX",
    "OBJECT_COST_MAX",
    "RULES",
    "RULE_COST_MAX",
    "SCHEMA_COST_MAX",
    "CelError",
    "CompileError",
    "Declared",
    "Environment",
    "EvaluationOutcome",
    "Overload",
    "Program",
    "RuleNode",
    "RuleResult",
    "compile_expression",
    "compile_rules",
    "declare",
    "run_rules",
]
