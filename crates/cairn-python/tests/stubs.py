"""Compares the stubs with the package: every public name and parameter is in both."""

import ast
import inspect
import pathlib
import sys

import cairn
import cairn.fsspec


def declared(body):
    found = {}
    for node in body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = declared(node.body)
        elif isinstance(node, ast.FunctionDef):
            arguments = node.args
            every = arguments.posonlyargs + arguments.args + arguments.kwonlyargs
            found[node.name] = [argument.arg for argument in every]
        elif isinstance(node, ast.AnnAssign):
            found[node.target.id] = None
        elif isinstance(node, ast.Assign):
            found[node.targets[0].id] = None
    return found


def compare(where, stub, thing, names):
    for name in names:
        assert name in stub, f"{where}{name} is missing in the stubs"
    for name, expected in stub.items():
        if name == "__init__" or name.startswith("_") and expected is None:
            continue
        if expected is None:
            # What an object gets when it is made.
            assert hasattr(thing, name) or inspect.isclass(thing), where + name
            continue
        real = getattr(thing, name)
        if isinstance(expected, dict):
            own = [name for name in vars(real) if not name.startswith("_")]
            compare(f"{where}{name}.", expected, real, [] if issubclass(real, tuple) else own)
        elif not isinstance(real, property):
            parameters = inspect.signature(real).parameters.values()
            variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
            found = [one.name for one in parameters if one.kind not in variable]
            assert [one for one in expected] == found, f"{where}{name}: {expected}, {found}"


root = pathlib.Path(sys.argv[1])
for module, names in [(cairn, cairn.__all__), (cairn.fsspec, ["CairnFileSystem"])]:
    name = "fsspec.pyi" if module is cairn.fsspec else "__init__.pyi"
    stub = declared(ast.parse((root / name).read_text()).body)
    compare("", stub, module, names)
assert (root / "py.typed").exists()
