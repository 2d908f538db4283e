"""Every message that a user can see has a test of its text, and no word of it is only a name of the source.

A message is a text that reaches an error or a line on the terminal: the words of the call itself, what a name in
it was assigned, what a function of the package returned for it, and what callers pass on to it.
"""

import ast
import doctest
import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
LINES = {"note", "say", "_say", "tell", "line", "failed", "event"}
LINES |= {"warning", "warn", "error", "refuses"}
OURS = {"AssertionError", "AttributeError", "NotImplementedError"}  # of mistakes in the source
FUNCTION = (ast.FunctionDef, ast.Lambda)
SENTENCE = re.compile("[a-z] [a-z]|[a-z]: .* .* ")

# Torch's, R-CNN's, NVCaffe's, and the bottoms that Caffe's papers name so.
ELSEWHERE = {"im_info", "opset_version", "raw_data", "state_dict", "x_static"}
ELSEWHERE |= {"selective_search_ijcv_with_python"}


class Text(NamedTuple):
    """A message as the source writes it: its literal parts, between which values are put."""

    file: str
    line: int
    parts: tuple[str, ...]
    names: tuple[str, ...]  # of the parameters of its function

    def __str__(self) -> str:
        return f"minicaffe/{self.file}:{self.line}: {' ... '.join(self.parts)!r}"


class Package:
    """The source: which function each node stands in, what names are assigned and what functions return."""

    def __init__(self) -> None:
        self.trees = {
            str(path.relative_to(ROOT / "minicaffe")): ast.parse(path.read_text("utf-8"))
            for path in sorted((ROOT / "minicaffe").rglob("*.py"))
        }
        self.scope: dict[ast.AST, ast.AST] = {}
        self.file: dict[ast.AST, str] = {}
        self.values: dict[tuple[ast.AST, str], list[ast.expr]] = defaultdict(list)
        self.returned: dict[str, list[ast.expr]] = defaultdict(list)
        self.defined: dict[str, list[ast.FunctionDef]] = defaultdict(list)
        for file, tree in self.trees.items():
            self.file[tree] = file
            self._enter(tree, tree)
        # functions and their parameters that become texts
        self.passed: set[tuple[str, str]] = set()
        self.walked: set[ast.AST] = set()
        self.texts: list[Text] = []
        before = -1
        while before != (before := len(self.passed)):
            for node in self.scope:
                if isinstance(node, ast.Call):
                    self._call(node)

    def _enter(self, node: ast.AST, scope: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            self.scope[child], self.file[child] = scope, self.file[node]
            if isinstance(child, ast.Assign):
                pairs = [(target, child.value) for target in child.targets]
            elif isinstance(child, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and child.value:
                pairs = [(child.target, child.value)]
            else:
                pairs = []
            for target, value in pairs:
                if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                    pairs += zip(target.elts, value.elts, strict=False)
                elif isinstance(target, ast.Name):
                    self.values[scope, target.id].append(value)
            if isinstance(child, ast.FunctionDef):
                self.defined[child.name].append(child)
            if isinstance(child, ast.Return) and child.value and isinstance(scope, ast.FunctionDef):
                self.returned[scope.name].append(child.value)
            self._enter(child, child if isinstance(child, FUNCTION) else scope)

    def _call(self, call: ast.Call) -> None:
        """Read what an error, a line or a function that passes it on to one is called with."""
        name = called(call)
        if name in LINES or (re.search("(Error|Exception)$", name) and name not in OURS):
            for value in call.args:
                self._read(value)
        for function in self.defined[name] if len(self.defined[name]) == 1 else ():
            names = parameters(function)
            by_place = zip(names[names[:1] in (["self"], ["cls"]) :], call.args, strict=False)
            for parameter, value in [*by_place, *((one.arg, one.value) for one in call.keywords)]:
                if (name, parameter) in self.passed:
                    self._read(value)

    def _read(self, node: ast.AST) -> None:
        """Collect the texts that an expression may have."""
        if node in self.walked:
            return
        self.walked.add(node)
        if any(map(SENTENCE.search, parts := tuple(literal(node)))):
            names = tuple(parameters(self.scope[node]))
            self.texts.append(Text(self.file[node], node.lineno, parts, names))
        if isinstance(node, ast.Name):
            self._name(node)
        elif isinstance(node, ast.Call):
            name = called(node)
            if len(self.defined[name]) == 1 or name in LINES:
                for value in self.returned[name]:
                    self._read(value)
            elif name in ("join", "format", "get"):
                for value in [*node.args, node.func.value]:
                    self._read(value)
        else:
            for value in inside(node):
                self._read(value)

    def _name(self, node: ast.Name) -> None:
        scope = self.scope[node]
        while True:
            for value in self.values[scope, node.id]:
                self._read(value)
            if node.id in parameters(scope) and isinstance(scope, ast.FunctionDef):
                self.passed.add((scope.name, node.id))
            if (
                self.values[scope, node.id]
                or node.id in parameters(scope)
                or scope not in self.scope
            ):
                return
            scope = self.scope[scope]


def called(call: ast.Call) -> str:
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


def parameters(scope: ast.AST) -> list[str]:
    return (
        [one.arg for one in [*scope.args.args, *scope.args.kwonlyargs]]
        if isinstance(scope, FUNCTION)
        else []
    )


def literal(node: ast.AST) -> Iterator[str]:
    """The literal parts of a text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from re.split("%[sdr]", node.value)
    elif isinstance(node, ast.JoinedStr):
        yield from (part for value in node.values for part in literal(value))
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from [*literal(node.left), *literal(node.right)]


def inside(node: ast.AST) -> list[ast.AST]:
    """What is put into a text, and the texts that an expression chooses from."""
    match node:
        case ast.JoinedStr():
            return [one.value for one in node.values if isinstance(one, ast.FormattedValue)]
        case ast.BinOp():
            return [
                value
                for side in [node.left, node.right]
                for value in ([] if [*literal(side)] else [side]) + inside(side)
            ]
        case ast.IfExp():
            return [node.body, node.orelse]
        case ast.BoolOp() | ast.Dict():
            return node.values
        case ast.List() | ast.Tuple():
            return node.elts
        case ast.GeneratorExp() | ast.ListComp():
            return [node.elt]
        case ast.NamedExpr() | ast.Subscript() | ast.Starred():
            return [node.value]
    return []


def words(text: str) -> list[str]:
    """The words of a text, or of a regular expression without its escapes."""
    return re.sub(r"[\W_]+", " ", re.sub(r"\\[nsdwbt](?![a-z])", " ", text)).lower().split()


@functools.cache
def package() -> Package:
    return Package()


@functools.cache
def words_of_tests() -> str:
    """The words of the texts in tests, and of what docs and docstrings show as printed."""
    texts = []
    for path in {*(ROOT / "tests").rglob("*.py")} - {Path(__file__)}:
        tree = ast.parse(path.read_text("utf-8"))
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts += [" ".join(literal(node)) for node in ast.walk(tree) if id(node) not in prose]
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        texts += re.findall(r"^```console\n(.*?)^```", page.read_text("utf-8"), re.S | re.M)
    for tree in package().trees.values():
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                examples = doctest.DocTestParser().get_examples(ast.get_docstring(node) or "")
                texts += [example.want for example in examples]
    return " | ".join(" ".join(words(text)) for text in texts if text)


def is_tested(text: Text) -> bool:
    """True if a run of words of a part stands in a test: four, or all of the longest if that has fewer."""
    parts = [words(part) for part in text.parts]
    most = min(4, max(map(len, parts)))
    runs = [part[at : at + most] for part in parts for at in range(len(part) - most + 1)]
    return any(f" {' '.join(run)} " in f" {words_of_tests()} " for run in runs)


@functools.cache
def known_names() -> set[str]:
    """Keys, functions, files, and other words that the package reads or writes."""
    names = set(re.findall(r"`([\w.]+)`", (ROOT / "docs" / "layers.md").read_text("utf-8")))
    for tree in package().trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                fields = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
                names.update(field.id for field in fields if isinstance(field, ast.Name))
            elif isinstance(node, ast.FunctionDef):
                names.add(node.name)
            elif isinstance(node, ast.Constant) and re.fullmatch(r"\w+", str(node.value)):
                names.add(node.value)
    return names | ELSEWHERE


def unknown_names(text: Text) -> set[str]:
    """The words with an underscore that a user cannot know."""
    joined = " ".join(text.parts)
    return set(re.findall(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+", joined)) - known_names() - {*text.names}


def test_every_message_has_a_test_of_its_text():
    unseen = [str(text) for text in package().texts if not is_tested(text)]
    assert not unseen, "\n".join(["no test has the words of", *unseen])


def test_no_message_has_a_word_of_the_source():
    """A key, an option and a file have names with underscores; so has a local that a rename put into a sentence."""
    wrong = [f"{text}: {names}" for text in package().texts if (names := unknown_names(text))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "parts, seen, names",
    [
        (["expected labels from 0 on, data_set "], True, {"data_set"}),
        (["cuBLAS turns no such matrix"], False, set()),
        (["expected num_output and bottoms, got "], False, set()),
        (["; did you mean ", "?"], True, set()),
    ],
)
def test_the_tests_of_messages_see(parts, seen, names):
    text = Text("a.py", 1, tuple(parts), ("self",))
    assert (is_tested(text), unknown_names(text)) == (seen, names)


def test_texts_are_followed_to_where_their_words_stand():
    """In a name, in what a function returns, in what a caller passes on, in a table."""
    assert len(package().texts) > 1300
    texts = {text.parts for text in package().texts}
    assert ("models in .yaml and .prototxt",) in texts
    assert ("no answer within ", " s") in texts
    assert ("the text in quotes does not end in its line",) in texts
    assert ("it is how a fork saves memory",) in texts
