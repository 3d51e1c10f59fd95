"""Crops, colours and batches against torchvision and Pillow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.stats import ks_2samp
from torch import Tensor
from torchvision import transforms as T
from torchvision.transforms import functional as F

from benchmark.data import colour, resample
from benchmark.data import loader as loading
from benchmark.data.crops import DRAWS, Crops, center_crops, random_crops, uniforms
from benchmark.data.decoding import stored_size
from benchmark.data.loader import Loader
from benchmark.data.store import ImageStore, open_store
from benchmark.data.transform import IMAGENET_MEAN, IMAGENET_STD, Transform
from benchmark.utils.errors import UserError
from tests.pictures import index_of, picture

SIZES = [(375, 500), (500, 333), (64, 64), (200, 300), (256, 256), (150, 900), (257, 300), (90, 45)]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for k, (height, width) in enumerate(SIZES):
        picture(rng, height, width).save(root / f"{k}.png")
    return root


@pytest.fixture(scope="module")
def store(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    return open_store(index_of(photos), tmp_path_factory.mktemp("cache"), progress=False)


def levels(batch: Tensor) -> Tensor:
    """Network input back in [0, 255]."""
    return (batch * torch.tensor(IMAGENET_STD).view(3, 1, 1) + torch.tensor(IMAGENET_MEAN).view(3, 1, 1)) * 255


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def boxes(transform: Transform, height: int, width: int, count: int) -> np.ndarray:
    sizes = np.tile([height, width], (count, 1))
    return random_crops(transform, sizes, sizes, uniforms(count, seeded(3))).box


@pytest.mark.parametrize(("height", "width", "scale"), [(375, 500, (0.08, 1.0)), (64, 64, (0.2, 1.0)),
                                                        (100, 260, (0.3, 1.0)), (700, 90, (0.08, 1.0))])
def test_resized_crops_follow_torchvisions_law(height: int, width: int, scale: tuple[float, float]) -> None:
    count = 2000
    ours = boxes(Transform(scale=scale), height, width, count)
    torch.manual_seed(5)
    blank = torch.empty(3, height, width)
    theirs = np.array([T.RandomResizedCrop.get_params(blank, list(scale), [3 / 4, 4 / 3]) for _ in range(count)])
    mine = np.column_stack([ours, ours[:, 2] * ours[:, 3], ours[:, 3] / ours[:, 2]])
    other = np.column_stack([theirs, theirs[:, 2] * theirs[:, 3], theirs[:, 3] / theirs[:, 2]])
    for column in range(6):
        assert ks_2samp(mine[:, column], other[:, column]).pvalue > 1e-3
    middle = [(np.ptp(b, axis=0) == 0).all() for b in (ours, theirs)]
    assert middle[0] == middle[1]


@pytest.mark.parametrize(("height", "width"), [(50, 400), (400, 50), (100, 120), (100, 133), (3, 1000)])
def test_fallback_is_torchvisions(height: int, width: int) -> None:
    # The whole area with an aspect ratio that the image has not: no try fits.
    transform = Transform(scale=(1.0, 1.0), ratio=(3 / 4, 0.76) if height < width else (1.3, 4 / 3))
    expected = T.RandomResizedCrop.get_params(torch.empty(3, height, width), [1.0, 1.0], list(transform.ratio))
    assert (boxes(transform, height, width, 4) == np.array(expected)).all()


def test_share_of_fallbacks() -> None:
    # 150 x 900: only areas up to 150 * 200 can fit, which some images miss in all ten tries.
    transform = Transform(scale=(0.1, 1.0))
    ours = (boxes(transform, 150, 900, 3000) == [0, 350, 150, 200]).all(1).mean()
    torch.manual_seed(0)
    blank = torch.empty(3, 150, 900)
    theirs = np.mean([T.RandomResizedCrop.get_params(blank, [0.1, 1.0], [3 / 4, 4 / 3]) == (0, 350, 150, 200)
                      for _ in range(3000)])
    assert 0.05 < theirs < 0.95
    assert abs(ours - theirs) < 4 * np.sqrt(2 * 0.25 / 3000)


def test_crops_are_drawn_on_the_original() -> None:
    # A stored image three times smaller: the same crop, three times smaller.
    original = np.array([[768, 1200]])
    draws = uniforms(1, seeded(9))
    large = random_crops(Transform(), original, original, draws)
    small = random_crops(Transform(), original // 3, original, draws)
    np.testing.assert_allclose(small.box * 3, large.box)


def test_plain_crops_follow_torchvisions_law() -> None:
    transform = Transform.named("red")
    ours = boxes(transform, 256, 341, 3000)
    assert (ours[:, 2:] == 224).all()
    torch.manual_seed(1)
    theirs = np.array([T.RandomCrop.get_params(torch.empty(3, 256, 341), (224, 224)) for _ in range(3000)])
    for column in range(2):
        assert ks_2samp(ours[:, column], theirs[:, column]).pvalue > 1e-3
        assert set(np.unique(ours[:, column])) == set(range((256, 341)[column] - 223))


@settings(max_examples=60)
@given(st.integers(1, 2000), st.integers(1, 2000), st.integers(0, 2**31), st.sampled_from(["resized", "plain"]))
def test_boxes_lie_within_the_image(height: int, width: int, seed: int, crop: str) -> None:
    stored = np.tile(stored_size(height, width), (5, 1))
    crops = random_crops(Transform(crop=crop), stored, np.tile([height, width], (5, 1)), uniforms(5, seeded(seed)))
    for some in (crops, center_crops(Transform(), stored, np.tile([height, width], (5, 1)))):
        assert (some.box[:, :2] >= 0).all()
        assert (some.box[:, :2] + some.box[:, 2:] <= stored + 1e-6).all()
        assert (some.window[:, ::2] < some.window[:, 1::2]).all()
        assert (some.window[:, ::2] >= 0).all()
        assert (some.window[:, 1::2] <= stored).all()


@pytest.mark.parametrize("transform", [Transform(), Transform(size=32, resize=36), Transform.named("big"),
                                       Transform(size=227), Transform(interpolation="bicubic")])
def test_evaluation_is_torchvisions(photos: Path, store: ImageStore, transform: Transform) -> None:
    """On the CPU to the bit where nothing is resampled, within one level where the stored image is the original."""
    how = T.InterpolationMode(transform.interpolation)
    theirs = T.Compose([T.Resize(transform.resize, how), T.CenterCrop(transform.size), T.PILToTensor()])
    batch = levels(Loader(store, transform).evaluate(torch.arange(len(store))))
    for i, path in enumerate(index_of(photos).paths):
        difference = (batch[i] - theirs(Image.open(photos / path))).abs()
        if min(store.sizes[i]) == transform.resize and transform.interpolation == "bilinear":
            assert difference.max() < 1e-3
        elif (store.sizes[i] == store.originals[i]).all():
            assert difference.max() < 1.001
            assert difference.mean() < 0.05
        else:
            assert difference.mean() < 2


def test_a_filter_of_ones_own_reaches_the_evaluation_of_images_that_are_stored_whole(store: ImageStore) -> None:
    bilinear, bicubic = (Loader(store, Transform(interpolation=how)).evaluate(torch.arange(len(store)))
                         for how in ("bilinear", "bicubic"))
    whole = torch.from_numpy(store.originals.min(1) < 256)
    assert 0 < whole.sum() < len(store)
    assert torch.equal((bilinear != bicubic).flatten(1).any(1), whole)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [24, 224])
def test_matrix_road_is_pillows_filter(store: ImageStore, interpolation: str, size: int) -> None:
    """Crop, then resize: within one level of 255, Pillow rounding twice where the products do not round."""
    transform = Transform(size=size, interpolation=interpolation)
    ids = np.arange(len(store)).repeat(3)
    # Whole pixels, as Pillow cuts: crops drawn on the stored image.
    crops = random_crops(transform, store.sizes[ids], store.sizes[ids], uniforms(len(ids), seeded(2)))
    batch = by_matrix(store, ids, crops, size, interpolation)
    for i, box, flip, ours in zip(ids, crops.box.astype(int), crops.flip, batch):
        top, left, height, width = box.tolist()
        cut = F.resized_crop(Image.fromarray(store.image(int(i))), top, left, height, width, [size, size],
                             T.InterpolationMode(interpolation))
        theirs = np.asarray(F.hflip(cut) if flip else cut).transpose(2, 0, 1)
        assert np.abs(ours.numpy() - theirs).max() <= 1.01 + (interpolation == "bicubic")


def by_matrix(store: ImageStore, ids: np.ndarray, crops: Crops, size: int, interpolation: str) -> Tensor:
    widths = store.sizes[ids, 1].astype(np.int64)
    pixels = np.concatenate([store.pixels, np.full(resample.slack(widths), 255, np.uint8)])
    return resample.by_matrix(torch.from_numpy(pixels), store.offsets[ids], widths,
                              crops, size, interpolation)


def test_matrix_road_evaluates_as_torchvision(photos: Path, store: ImageStore) -> None:
    for transform in (Transform(), Transform(size=32, resize=36)):
        ids = np.arange(len(store))
        crops = center_crops(transform, store.sizes, store.originals)
        batch = by_matrix(store, ids, crops, transform.size, "bilinear").float()
        exact = levels(Loader(store, transform).evaluate(torch.from_numpy(ids)))
        assert (batch - exact).abs().max() <= 1.01


def test_matrix_road_in_parts(store: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.arange(len(store))
    crops = random_crops(Transform(), store.sizes, store.originals, uniforms(len(ids), seeded(4)))
    whole = by_matrix(store, ids, crops, 224, "bilinear")
    monkeypatch.setattr(resample, "_ELEMENTS", 3 * 256 * 256 * 3)
    torch.testing.assert_close(by_matrix(store, ids, crops, 224, "bilinear"), whole)


@pytest.mark.parametrize("road", ["opencv", "pillow", "matrix"])
def test_how_far_training_pixels_are_from_the_original(tmp_path: Path, road: str) -> None:
    """Two photographs, 427 x 640: crops of the 256-px copy differ from the original's by 3 or 4 of 255 on average.

    That is mostly the detail that the copy has lost. From Pillow's crop of the same copy the exact roads differ by less
    than half a level, OpenCV by 2.2, nearly all of it from rounding the box to whole pixels.
    """
    from sklearn.datasets import load_sample_images

    root = tmp_path / "photos"
    root.mkdir()
    for k, pixels in enumerate(load_sample_images().images):
        Image.fromarray(pixels).save(root / f"{k}.png")
    store = open_store(index_of(root), tmp_path, progress=False)
    ids = np.arange(2).repeat(8)
    draws = uniforms(len(ids), seeded(0))
    crops = random_crops(Transform(), store.sizes[ids], store.originals[ids], draws)
    asked = random_crops(Transform(), store.originals[ids], store.originals[ids], draws).box.astype(int)
    if road == "matrix":
        ours = by_matrix(store, ids, crops, 224, "bilinear").float()
    else:
        ours = resample.one_by_one(store.pixels, store.offsets[ids], store.sizes[ids, 1], crops, 224, "bilinear",
                                   exact=road == "pillow").float()
    from_original, from_copy = [], []
    for i, box, flip, mine in zip(ids, asked, crops.flip, ours):
        cut = F.resized_crop(Image.open(root / f"{i}.png"), *box.tolist(), [224, 224])
        from_original.append((mine - F.pil_to_tensor(F.hflip(cut) if flip else cut)).abs().mean())
        top, left, height, width = (box * np.array([256 / 427, 383 / 640] * 2)).tolist()
        copy = Image.fromarray(store.image(int(i))).resize((224, 224), Image.Resampling.BILINEAR,
                                                      (left, top, left + width, top + height))
        from_copy.append((mine - F.pil_to_tensor(F.hflip(copy) if flip else copy)).abs().mean())
    assert np.mean(from_original) < (4.5 if road == "opencv" else 3.5)
    assert np.mean(from_copy) < (2.5 if road == "opencv" else 0.5)


def test_training_without_opencv(store: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = torch.arange(len(store))
    fast = levels(Loader(store, Transform()).train(ids, seeded(1)))
    monkeypatch.setattr(resample, "HAS_OPENCV", False)
    slow = levels(Loader(store, Transform()).train(ids, seeded(1)))
    assert (fast - slow).abs().mean() < 3


CHANGES = [(colour.brightness, F.adjust_brightness, 0.4), (colour.contrast, F.adjust_contrast, 1.7),
           (colour.saturation, F.adjust_saturation, 1.9), (colour.saturation, F.adjust_saturation, 0.0),
           (colour.hue, F.adjust_hue, 0.3), (colour.hue, F.adjust_hue, -0.45)]


@pytest.mark.parametrize(("ours", "theirs", "factor"), CHANGES)
def test_colour_changes_are_torchvisions(ours, theirs, factor: float) -> None:
    batch = torch.rand(5, 3, 9, 7, generator=seeded(0))
    batch[0] = batch[0, :1]
    batch[1, :, 0] = 0
    expected = torch.stack([theirs(image, factor) for image in batch])
    torch.testing.assert_close(ours(batch.clone(), torch.full((5, 1, 1, 1), factor)), expected, atol=2e-6, rtol=0)


def test_jitter_in_the_order_drawn() -> None:
    transform = Transform.named("adv_released")
    batch = torch.rand(40, 3, 6, 6, generator=seeded(0))
    draws = uniforms(40, seeded(1))
    ours = colour.colour(batch.clone(), transform, draws)
    steps = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
    grey = draws[:, DRAWS - 9] < 0.2
    assert 0 < grey.sum() < 40
    for image, result, row, is_grey in zip(batch, ours, draws, grey):
        image = F.rgb_to_grayscale(image, 3) if is_grey else image
        for change in row[-4:].argsort().tolist():
            u = row[-8 + change].item()
            image = steps[change](image, 0.8 + 0.4 * u if change < 3 else -0.2 + 0.4 * u)
        torch.testing.assert_close(result, image, atol=5e-6, rtol=0)


def test_batches_depend_on_the_seed_alone(store: ImageStore) -> None:
    ids = torch.tensor([3, 1, 1, 7, 0])
    transform = Transform.named("adv", size=64)
    first = Loader(store, transform, placement="host").train(ids, seeded(1))
    assert first.shape == (5, 3, 64, 64)
    assert first.dtype == torch.float32
    assert torch.equal(first, Loader(store, transform, placement="disk").train(ids, seeded(1)))
    assert not torch.equal(first, Loader(store, transform).train(ids, seeded(2)))
    assert not torch.equal(first[1], first[2])
    torch.manual_seed(0)
    assert torch.equal(first, Loader(store, transform).train(ids, seeded(1)))


def test_batches_to_embed_on_a_cpu_have_about_as_many_pixels(store: ImageStore) -> None:
    """512 photographs at once took 8 GB."""
    sizes = {size: Loader(store, Transform(size=size, resize=size)).at_once for size in (32, 64, 224, 448, 2000)}
    assert sizes == {32: 512, 64: 512, 224: 41, 448: 10, 2000: 1}


def test_batches_to_embed_on_a_gpu_are_those_of_published_runs(store: ImageStore,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    """Embeddings of another batch differ in their last digits: glyphs are of 64 px, photographs of 224."""
    found = {}
    for size in (64, 112, 113, 160, 224, 448, 518):
        loader = Loader(store, Transform(size=size, resize=size))
        monkeypatch.setattr(loader, "device", torch.device("cuda"))
        found[size] = loader.at_once
    assert found == {64: 4608, 112: 2048, 113: 512, 160: 512, 224: 512, 448: 512, 518: 512}


def test_prefetched_batches_are_the_same(store: ImageStore) -> None:
    loader = Loader(store, Transform(size=32, resize=36))
    batches = list(torch.randint(0, len(store), (7, 4), generator=seeded(0)))
    for ahead in (0, 1, 5, 20):
        made = list(loader.prefetch(batches, seeded, ahead=ahead))
        assert [ids.tolist() for ids, _ in made] == [ids.tolist() for ids in batches]
        assert all(torch.equal(x, loader.train(ids, seeded(k))) for k, (ids, x) in enumerate(made))
    assert all(torch.equal(x, loader.evaluate(ids)) for ids, x in loader.prefetch(batches))
    abandoned = loader.prefetch(batches, seeded)
    next(abandoned)
    abandoned.close()
    with pytest.raises(IndexError, match="image ids"):
        list(loader.prefetch([torch.tensor([len(store)])]))


def test_flip_mirrors(store: ImageStore) -> None:
    ids = torch.arange(len(store))
    left = Loader(store, Transform(flip=0.0)).train(ids, seeded(0))
    right = Loader(store, Transform(flip=1.0)).train(ids, seeded(0))
    assert torch.equal(left, right.flip(3))
    draws = uniforms(4000, seeded(0))
    sizes = np.full((4000, 2), 50)
    assert abs(random_crops(Transform(), sizes, sizes, draws).flip.mean() - 0.5) < 0.04


def test_placement_is_explained(store: ImageStore) -> None:
    assert Loader(store, Transform()).placement == "host"
    scarce = Loader(store, Transform(), memory_share=0.0)
    assert scarce.placement == "disk"
    assert "kept on disk" in scarce.describe()
    assert "share 0" in scarce.describe()
    with pytest.raises(UserError, match="needs a CUDA device"):
        Loader(store, Transform(), placement="device")


@pytest.mark.parametrize("wrong", [{"size": 300}, {"scale": (0.5, 0.1)}, {"jitter": (0, 0, 0, 0.7)}, {"std": (0, 1, 1)},
                                   {"interpolation": "nearest"}, {"crop": "middle"}])
def test_wrong_settings(wrong: dict) -> None:
    with pytest.raises(UserError):
        Transform(**wrong)


def test_named() -> None:
    assert Transform.named("base") == Transform()
    assert Transform.named("adv").grayscale == 0
    with pytest.raises(UserError, match="did you mean 'base'"):
        Transform.named("bases")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_cuda(store: ImageStore) -> None:
    """Every placement gives the same batch; evaluation lies within 1.2 of 255 of torchvision, in half precision."""
    ids = torch.tensor([5, 0, 1, 2, 7, 3])
    for transform in (Transform(), Transform.named("red"), Transform.named("adv", size=64)):
        loaders = [Loader(store, transform, "cuda", placement=p) for p in ("device", "host", "disk")]
        first = loaders[0].train(ids, seeded(1))
        assert all(torch.equal(first, other.train(ids, seeded(1))) for other in loaders)
        for loader in loaders:
            (_, ahead), = loader.prefetch([ids], lambda _: seeded(1))
            assert torch.equal(ahead, first)
            difference = levels(loader.evaluate(ids).cpu()) - levels(Loader(store, transform).evaluate(ids))
            assert difference.abs().max() < 1.2
    assert Loader(store, Transform(), "cuda").placement == "device"
    loading._resident.clear()  # what is on the GPU already needs no room
    assert Loader(store, Transform(), "cuda", memory_share=1e-9).placement == "disk"
