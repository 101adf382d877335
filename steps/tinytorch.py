"""What `import tinytorch` means inside a step: the finished modules, and nothing that they do not
import.

`python steps/depth/63a.py` puts this folder first on the search path, so a step finds this file
instead of the package. The file only says where the modules lie. No `__init__.py` of the package
runs, since that would import everything, also the module that the step is about to build. So a
step runs from a fresh clone with NumPy alone, and has exactly what it asks for: `from
tinytorch.core.tensor import Tensor`. Keep `steps/` itself off every other search path.
"""

import pathlib
import sys
import types

_home = pathlib.Path(__file__).resolve().parent.parent / "tinytorch"
__path__ = [str(_home)]

for _folder in sorted(_init.parent for _init in _home.glob("*/**/__init__.py")):
    _parent, _name = ".".join(("tinytorch", *_folder.relative_to(_home).parts)).rsplit(".", 1)
    _package = types.ModuleType(f"{_parent}.{_name}")
    _package.__path__ = [str(_folder)]
    sys.modules[_package.__name__] = _package
    setattr(sys.modules[_parent], _name, _package)
