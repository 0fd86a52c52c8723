"""Contract under test: one import name, wherever bitverdict lies, and a pytest plugin that does nothing until it is asked."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import bitverdict

CHECKOUT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
ROOMS = ("bitverdict", "harness", "kernels", "reference")
EVERYTHING = """
import importlib, json, pkgutil, sys
import bitverdict
failed = {}
for found in pkgutil.walk_packages(bitverdict.__path__, "bitverdict."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
places = {}
for name, module in list(sys.modules.items()):
    file = getattr(module, "__file__", None)
    if file:
        import os
        places.setdefault(os.path.realpath(file), []).append(name)
rooms = {"bitverdict", "harness", "kernels", "reference"}
print(json.dumps({file: names for file, names in places.items() if any(name.partition(".")[0] in rooms for name in names)}))
"""


def python(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess:
    """A Python that has nothing but the checkout on its path."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment |= {"PYTHONPATH": str(CHECKOUT), **variables}
    return subprocess.run([sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Real file -> names of its modules, in a process in another folder that imported all there is."""
    done = python("-c", EVERYTHING, cwd=tmp_path_factory.mktemp("elsewhere"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.share(4)
def test_no_module_is_loaded_under_two_names(places: dict[str, list[str]]) -> None:
    assert len(places) > 150 and not {file: names for file, names in places.items() if len(names) > 1}


@pytest.mark.share(4)
def test_every_module_is_called_bitverdict_and_lies_where_git_knows_it(places: dict[str, list[str]]) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.split()
    for file, (name,) in places.items():
        assert name.startswith("bitverdict") and str(Path(file).relative_to(CHECKOUT)) in listed, (name, file)


@pytest.mark.share(4)
def test_a_module_says_the_file_that_git_knows(tmp_path: Path) -> None:
    done = python("-c", "import bitverdict.kernels.matmul as m; print(m.__file__)", cwd=tmp_path)
    assert done.stdout.strip() == str(CHECKOUT / "kernels" / "matmul.py")


@pytest.mark.parametrize("name", ["harness", "kernels.matmul", "reference.formats", "harness.model.contract"])
def test_the_bare_name_of_a_room_is_refused_with_the_right_one(name: str) -> None:
    done = python("-c", f"import {name}", cwd=CHECKOUT)
    top = name.partition(".")[0]
    assert f"ModuleNotFoundError: {top}: is called bitverdict.{top}; import it by that name" in done.stderr


@pytest.mark.share(4)
def test_a_package_called_kernels_is_imported_where_one_is_installed(tmp_path: Path) -> None:
    """Hugging Face's, which transformers imports: the checkout's folder of that name comes first on the path."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "__init__.py").write_text("from kernels.layer import Y\n")
    (tmp_path / "kernels" / "layer.py").write_text("Y = 6\n")
    said = "import sys; sys.path.append(sys.argv[1]); import kernels.layer, bitverdict.kernels.matmul as ours; "
    done = python("-c", f"{said}print(kernels.Y, kernels.__file__, ours.__file__)", str(tmp_path), cwd=CHECKOUT)
    assert done.stdout.split() == ["6", str(tmp_path / "kernels" / "__init__.py"), str(CHECKOUT / "kernels" / "matmul.py")], done


def test_each_public_name_is_there_and_no_other() -> None:
    for name in bitverdict.__all__:
        assert getattr(bitverdict, name) is not None
    with pytest.raises(AttributeError, match=r"bitverdict has no nothing; it has Case, "):
        _ = bitverdict.nothing  # type: ignore[attr-defined]


def test_the_version_is_said_once() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"]["attr"] == "bitverdict.__version__"


def test_what_an_installation_needs_stands_with_its_reason_in_requirements() -> None:
    lines = [line.partition("#")[0].strip() for line in (CHECKOUT / "requirements.txt").read_text().splitlines()]
    extras = PROJECT["project"]["optional-dependencies"]
    optional = {"cuda", "numba", "ray", "redis"}  # what a user asks for by name: neither runs, tests nor lint need it
    needed = [*PROJECT["project"]["dependencies"], *(each for name in extras.keys() - optional for each in extras[name])]
    assert sorted(needed) == sorted(line for line in lines if line)


def test_only_bitverdict_is_packaged() -> None:
    assert PROJECT["tool"]["setuptools"]["packages"]["find"]["include"] == ["bitverdict*"]


def test_the_entry_points_lead_somewhere() -> None:
    scripts, plugins = PROJECT["project"]["scripts"], PROJECT["project"]["entry-points"]["pytest11"]
    for name, value in [*scripts.items(), *plugins.items()]:
        assert EntryPoint(name, value, "").load() is not None
    assert list(scripts) == ["bitverdict"]


def run_pytest(folder: Path, *words: str) -> subprocess.CompletedProcess:
    """pytest in a repository of a user's, with the entry point's module loaded as an installation would."""
    (name,) = PROJECT["project"]["entry-points"]["pytest11"].values()
    (folder / "test_it.py").write_text(
        "import sys\n"
        "def test_it(request):\n"
        "    print('loaded', sorted({'torch', 'numpy', 'hypothesis'} & set(sys.modules)), end=' ')\n"
        "    print('plugin', request.config.pluginmanager.hasplugin('bitverdict.harness.frontends.pytest_plugin'))\n"
    )
    return python("-m", "pytest", "-q", "-s", "-p", name, *words, cwd=folder, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")


def test_the_plugin_does_nothing_until_it_is_asked(tmp_path: Path) -> None:
    done = run_pytest(tmp_path)
    assert done.returncode == 0 and "loaded [] plugin False" in done.stdout, done.stdout + done.stderr


@pytest.mark.share(4)
def test_pytest_rewrites_no_module_of_the_package(tmp_path: Path) -> None:
    """Of an installed plugin it would: each module is parsed then, in every run where no bytecode can be written."""
    (name,) = PROJECT["project"]["entry-points"]["pytest11"].values()
    text = "from bitverdict.harness.emulator import device\n\ndef test_it():\n    print('loaded by', type(device.__loader__))\n"
    (tmp_path / "test_it.py").write_text(text)
    plugins = ["-p", "no:hypothesispytest", "-p", "bitverdict", "-p", name]  # by its name pytest marks it as an installed one
    done = python("-m", "pytest", "-q", "-s", *plugins, "--emulate", cwd=tmp_path)
    assert done.returncode == 0 and "SourceFileLoader" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("asked", ["--bitverdict", "bitverdict=true"])
@pytest.mark.share(4)
def test_the_plugin_is_there_when_it_is_asked(asked: str, tmp_path: Path) -> None:
    done = run_pytest(tmp_path, *([asked] if asked.startswith("-") else ["-o", asked]))
    assert done.returncode == 0 and "plugin True" in done.stdout, done.stdout + done.stderr


@pytest.mark.share(4)
def test_the_plugin_works_where_pytest_xdist_is_not(tmp_path: Path) -> None:
    """An installation brings pytest alone: each hook of pytest-xdist's must be optional."""
    done = run_pytest(tmp_path, "--bitverdict", "-p", "no:xdist")
    assert done.returncode == 0 and "plugin True" in done.stdout, done.stdout + done.stderr


def faked_triton(folder: Path, version: str) -> str:
    """A search path in front of which the installed Triton says that it is `version`, and its distribution too."""
    package, told = folder / "fake" / "triton", folder / "fake" / f"triton-{version}.dist-info"
    package.mkdir(parents=True)
    told.mkdir()
    (there,) = importlib.util.find_spec("triton").submodule_search_locations
    for each in Path(there).iterdir():
        (package / each.name).symlink_to(each)
    (package / "__init__.py").unlink()
    text = (Path(there) / "__init__.py").read_text()
    (package / "__init__.py").write_text(re.sub("__version__ = '.*'", f"__version__ = '{version}'", text))
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: triton\nVersion: {version}\n")
    (told / "RECORD").write_text("triton/__init__.py,,\n")
    return os.pathsep.join((str(package.parent), str(CHECKOUT)))


@pytest.mark.parametrize(
    "words", [("bitverdict", "run", "softmax"), ("pytest", "--bitverdict", "--rootdir", ".")], ids=lambda words: words[0]
)
def test_a_release_of_triton_that_is_not_taken_is_one_sentence(words: tuple[str, ...], tmp_path: Path) -> None:
    path, more = faked_triton(tmp_path, "3.5.1"), {"PYTEST_PLUGINS": "bitverdict.harness.frontends.pytest_options"}
    done = python("-m", *words, cwd=tmp_path, PYTHONPATH=path, **more)
    assert done.returncode == (2 if words[0] == "bitverdict" else 4)
    (line,) = done.stderr.strip().splitlines()
    assert line.lower() == "error: triton 3.5.1 is installed: must be 3.6 or newer; install 'triton>=3.6'"


def test_a_script_that_asks_for_a_name_meets_the_same_sentence(tmp_path: Path) -> None:
    done = python("-c", "import bitverdict; bitverdict.emulated", cwd=tmp_path, PYTHONPATH=faked_triton(tmp_path, "3.5.1"))
    assert done.stderr.endswith("ImportError: triton 3.5.1 is installed: must be 3.6 or newer; install 'triton>=3.6'\n")


@pytest.mark.parametrize("version", ["3.6.0", "3.9.7"])
def test_a_release_of_triton_that_is_taken_goes_on(version: str, tmp_path: Path) -> None:
    done = python("-m", "bitverdict", "run", "no_such_kernel", cwd=tmp_path, PYTHONPATH=faked_triton(tmp_path, version))
    assert "no_such_kernel" in done.stderr and "is installed" not in done.stderr


def test_the_version_names_the_releases_of_triton(tmp_path: Path) -> None:
    done = python("-m", "bitverdict", "--version", cwd=tmp_path, PYTHONPATH=faked_triton(tmp_path, "3.10.0"))
    first, second = done.stdout.splitlines()
    assert first.startswith(f"bitverdict {bitverdict.__version__}, triton 3.10.0, torch ")
    assert second == "proven releases of Triton: 3.6.0, 3.7.0, 3.7.1, 3.8.x, 3.9.x; newer ones are tried"


def test_what_may_be_installed_is_what_is_taken() -> None:
    from bitverdict.harness.model.triton_release import REMEDY

    (line,) = (each for each in PROJECT["project"]["dependencies"] if each.startswith("triton"))
    assert f"'{line}'" in REMEDY
    (line,) = (each for each in (CHECKOUT / "requirements.txt").read_text().splitlines() if each.startswith("triton"))
    assert f"'{line.split()[0]}'" in REMEDY


@pytest.mark.share(4)
def test_an_unpacked_zip_judges_a_case(tmp_path: Path) -> None:
    """Python's zipfile writes a link as a file that holds its text, as a Windows checkout does."""
    if not (CHECKOUT / ".git").exists():
        pytest.skip("no git checkout to archive")
    subprocess.run(["git", "archive", "--format=zip", "-o", tmp_path / "it.zip", "HEAD", *ROOMS], cwd=CHECKOUT, check=True)
    with zipfile.ZipFile(tmp_path / "it.zip") as archive:
        archive.extractall(tmp_path / "it")
    assert (tmp_path / "it" / "bitverdict" / "harness").is_file()
    words = ("-m", "bitverdict", "run", "small_mma", "--max-cases", "1", "--target", "emulated:sm_100")
    found = python("-c", "import bitverdict.harness as h; print(h.__file__)", cwd=tmp_path, PYTHONPATH=str(tmp_path / "it"))
    assert Path(found.stdout).is_relative_to(tmp_path), "an editable install stands in for it" + found.stderr
    done = python(*words, cwd=tmp_path, PYTHONPATH=str(tmp_path / "it"), BITVERDICT_STATE=str(tmp_path / "state"))
    assert done.returncode == 0 and "1 pass" in done.stdout, done.stdout + done.stderr
