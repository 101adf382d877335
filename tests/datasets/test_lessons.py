"""lessons.txt.gz, the text that the GPT of stage 15 learns from, is frozen."""

import gzip
import hashlib
from pathlib import Path

from tinytorch import datasets


def test_the_text_is_the_one_that_the_figures_of_stage_15_were_measured_on():
    with gzip.open(Path(datasets.__file__).parent / "lessons.txt.gz", "rb") as file:
        text = file.read()
    assert len(text) == len(text.decode("ascii")) == 320_458
    assert hashlib.sha256(text).hexdigest() == (
        "b2a95c017a66a166db83e07841921c1bf94ef8ed474ed5f0ad2f09b2371d1848"
    )
