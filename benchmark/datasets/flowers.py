"""Oxford Flowers-102: 102 species of flowers; the first 51 by number are trained on.

torchvision's Flowers102 reads the same tree but splits every species in three; metric learning splits the species and
uses all images of each, so setid.mat is not needed and the labels are read here.
"""

from __future__ import annotations

from pathlib import Path

from benchmark.datasets import Counts, Dataset, DatasetIndex
from benchmark.datasets.reading import class_numbers, existing, find, make_index, mat

FOLDERS = ("flowers-102", "flowers102", "flowers", "102flowers", "oxford-102-flowers", "oxford_flowers102")

NAMES = """
pink primrose, hard-leaved pocket orchid, canterbury bells, sweet pea, english marigold, tiger lily, moon orchid, bird
of paradise, monkshood, globe thistle, snapdragon, colt's foot, king protea, spear thistle, yellow iris, globe-flower,
purple coneflower, peruvian lily, balloon flower, giant white arum lily, fire lily, pincushion flower, fritillary, red
ginger, grape hyacinth, corn poppy, prince of wales feathers, stemless gentian, artichoke, sweet william, carnation,
garden phlox, love in the mist, mexican aster, alpine sea holly, ruby-lipped cattleya, cape flower, great masterwort,
siam tulip, lenten rose, barbeton daisy, daffodil, sword lily, poinsettia, bolero deep blue, wallflower, marigold,
buttercup, oxeye daisy, common dandelion, petunia, wild pansy, primula, sunflower, pelargonium, bishop of llandaff,
gaura, geranium, orange dahlia, pink-yellow dahlia, cautleya spicata, japanese anemone, black-eyed susan, silverbush,
californian poppy, osteospermum, spring crocus, bearded iris, windflower, tree poppy, gazania, azalea, water lily,
rose, thorn apple, morning glory, passion flower, lotus, toad lily, anthurium, frangipani, clematis, hibiscus,
columbine, desert-rose, tree mallow, magnolia, cyclamen, watercress, canna lily, hippeastrum, bee balm, ball moss,
foxglove, bougainvillea, camellia, mallow, mexican petunia, bromelia, blanket flower, trumpet creeper, blackberry lily
""".replace("\n", " ").strip().split(", ")
"""The species in the order of their numbers, as torchvision names them; the archive has numbers alone."""


def read(data: Path) -> DatasetIndex:
    """Reads imagelabels.mat, whose i-th entry is the species of jpg/image_0000i.jpg, counted from 1."""
    root = find("flowers", data, FOLDERS, ("imagelabels.mat", "jpg"))
    path = existing("flowers", root, ("imagelabels.mat",))
    (labels,) = mat(path, "labels", name="flowers")
    keys = class_numbers(labels, path)
    paths = [f"image_{i:05d}.jpg" for i in range(1, len(keys) + 1)]
    return make_index("flowers", root / "jpg", paths, keys, where=path,
                      class_names={i: f"{i:03d}.{name}" for i, name in enumerate(NAMES, 1)})


DATASETS = (Dataset(
    name="flowers",
    title="Oxford Flowers-102, photographs of flowers",
    read=read,
    folders=FOLDERS,
    source="102flowers.tgz and imagelabels.mat from the 102 Category Flower Dataset page of Oxford's Visual Geometry "
           "Group; torchvision.datasets.Flowers102('DATA', download=True) fetches and unpacks them.",
    tree="""\
DATA/flowers-102/                  also named flowers or 102flowers
    imagelabels.mat                labels, 1 x 8189
    jpg/image_00001.jpg ...""",
    counts=Counts(3493, 51, 4696, 51),
    classification=(2040, 6149),
),)
