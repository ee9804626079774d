"""`restow version`: print the versions of restow and Python."""

import argparse
import json
import platform

import restow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    facts = {"restow": restow.__version__, "python": platform.python_version()}
    if arguments.output == "json":
        print(json.dumps(facts))
    else:
        print(" ".join(f"{name} {version}" for name, version in facts.items()))
    return 0
