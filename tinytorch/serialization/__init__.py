"""Files: those of torch.save and torch.load, the pickles inside, and those of safetensors."""

from tinytorch.serialization import safetensors
from tinytorch.serialization.files import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    load,
    safe_globals,
    save,
)
