"""Home page, boards and figures in a real browser: the first screen, facets, lit and pinned methods, phone, print."""

from __future__ import annotations

import re
from itertools import pairwise, product
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import pandas as pd
import pytest

from tests.browser.test_pages import BOARD, column, methods, visit
from tests.test_site import Page, numbers_in_csv

GLYPHS = "[data-board='glyphs-recall-1']"
AGS = "[data-board='ags-glyphs-recall-1']"
LIT = "all => all.map(svg => [...svg.querySelectorAll('g.line.lit')].map(g => g.dataset.method))"


def bottom(page: Any, selector: str) -> float:
    box = page.locator(selector).first.bounding_box()
    return float(box["y"] + box["height"])


def test_the_first_screen_tells_the_result(page: Any, published: Path) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    visit(page, published, "index.html")
    for selector in (".hero .lead", ".hero svg.lines", "main section:nth-of-type(2) tbody tr:not(.group)"):
        assert bottom(page, selector) < 900, selector
    first = page.locator("main section:nth-of-type(2) [data-board]").first.get_attribute("data-board")
    board = pd.read_csv(published / "data" / f"{first}.csv")
    rungs = [key for key in board if re.fullmatch(r"rung\d+", key)]
    near, far = ("nearest", "farthest") if "nearest" in board else (rungs[0], rungs[-1])
    here = board[board["rank"].notna() & board[near].notna() & board[far].notna()]
    here = here[here["backbone"] == here["backbone"].mode()[0]] if "backbone" in here else here
    best = here.sort_values("rank", kind="stable").iloc[0]
    told = page.locator(".hero .lead").inner_text().replace("\N{NO-BREAK SPACE}", " ")
    assert told.startswith(best["method"])
    assert f"{100 * best[near]:.1f} %" in told
    assert f"{100 * best[far]:.1f} %" in told
    lost = 100 * (here[near] - here[far])
    assert f"{len(here)} methods" in page.locator("h1").inner_text()
    assert f"{lost.mean():.0f} points" in page.locator("h1").inner_text()
    glyphs = pd.read_csv(published / "data" / "ags-glyphs-recall-1.csv")
    ranked = glyphs[glyphs["rank"].notna() & (glyphs["backbone"] == glyphs["backbone"].iloc[0])]
    results = " ".join((Path(__file__).parents[2] / "docs/pages/results.md").read_text().split())
    lost = 100 * (ranked["nearest"] - ranked["farthest"])
    left = lost[lost > 0]  # the others collapse, and rise along the ladder
    assert f"the {len(left)} methods that do not collapse lose {left.mean():.0f} points on average" in results


def test_figures_of_the_documentation_are_those_of_the_published_records(published: Path) -> None:
    """`make report`, then copy them from `work/leaderboard/figures` to `docs/pages/figures`."""
    shown = sorted((Path(__file__).parents[2] / "docs/pages/figures").iterdir())
    assert shown
    for figure in shown:
        assert figure.read_bytes() == (published / "figures" / figure.name).read_bytes(), figure.name


def test_every_number_of_the_published_boards_is_in_its_csv(published: Path) -> None:
    names = ["index.html", "thresholds.html", "dataset/glyphs.html", "dataset/cub.html", "union/glyphs-uneven.html"]
    assert all(numbers_in_csv(Page(published / name), published) > 50 for name in names)


@pytest.mark.parametrize("scripts", [True, False])
def test_pages_are_one_row_of_menus_that_the_keyboard_opens(browser: Any, published: Path, scripts: bool) -> None:
    opened = browser.new_page(viewport={"width": 1440, "height": 900}, java_script_enabled=scripts)
    opened.goto(f"{published.as_uri()}/dataset/glyphs.html")
    entries = opened.locator(".top nav > *")
    tops = [entry.bounding_box()["y"] for entry in entries.all()]
    assert max(tops) - min(tops) < 10
    menu = entries.filter(has_text="Analysis")
    link = menu.get_by_role("link", name="Statistics")
    assert not link.is_visible()
    menu.locator("summary").focus()
    opened.keyboard.press("Enter")
    assert link.is_visible()
    opened.keyboard.press("Tab")
    opened.keyboard.press("Enter")
    opened.wait_for_url("**/statistics.html*")
    opened.set_viewport_size({"width": 390, "height": 844})
    for summary in opened.locator(".top nav summary").all():
        summary.click()
        box = opened.locator(".top nav .menu[open] > div").last.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    opened.close()


def test_names_of_lines_that_end_in_one_place_stand_apart(page: Any, published: Path) -> None:
    """Eight methods have all of Cars, six of them also both ends for another length, and four frozen networks all."""
    visit(page, published, "dataset/cars.html")
    heights = page.locator("svg.lines:visible").first.evaluate("""svg => [...svg.querySelectorAll("text.name")]
      .map(name => name.getBoundingClientRect()).filter(box => box.width).map(box => [box.left, box.top])""")
    ends = {left: sorted(top for x, top in heights if x == left) for left, _ in heights}
    assert max(map(len, ends.values())) == 18
    assert all(b - a > 11 for tops in ends.values() for a, b in pairwise(tops))


def test_no_page_of_the_published_study_is_large(published: Path) -> None:
    shared = sum(path.stat().st_size for path in (published / "assets").iterdir())
    assert all(path.stat().st_size + shared < 1_000_000 for path in published.rglob("*.html"))


def test_the_published_study_shows_what_is_there_and_what_is_not(page: Any, published: Path) -> None:
    every = sorted(published.rglob("*.html"))
    missing = re.compile(r"\bnan\b|\bNaN\b|\bundefined\b")
    for path in every:
        assert not missing.search(re.sub(r"<script.*?</script>|<[^>]*>", " ", path.read_text(), flags=re.DOTALL)), path
    # methods are many and their pages alike: the longest, the shortest and every tenth are looked at in the browser
    kind = sorted((path for path in every if path.parent.name == "method"), key=lambda path: path.stat().st_size)
    assert len(kind) > 40
    for path in [path for path in every if path not in kind] + [*kind[:-3:10], *kind[-3:]]:
        page.set_viewport_size({"width": 1280, "height": 900})
        visit(page, published, str(path.relative_to(published)))
        assert not missing.search(page.inner_text("main")), path.name
        for width in (1280, 360):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("() => document.documentElement.scrollWidth") <= width, path.name
    for name in ("cub", "glyphs"):
        visit(page, published, f"dataset/{name}.html")
        picture = page.locator("figure.picture img").first
        picture.scroll_into_view_if_needed()
        page.wait_for_function("image => image.complete && image.naturalWidth > 0", arg=picture.element_handle())
    ranks = page.locator("[data-board='glyphs-recall-1'] tbody tr.incomplete td.rank").all_inner_texts()
    assert set(ranks) <= {"–"}


def test_a_method_is_lit_in_every_figure_and_in_the_table(page: Any, published: Path) -> None:
    visit(page, published, "dataset/glyphs.html")
    row = page.locator(f"{GLYPHS} tbody tr[data-method^='triplet']").first
    name = row.get_attribute("data-method")
    row.locator("td").nth(1).hover()
    showing = page.locator(f"svg.lines:visible:has(g.line[data-method='{name}'])")
    assert showing.count() >= 4  # curve, difference, ranks, gain
    assert showing.evaluate_all(LIT) == [[name]] * showing.count()
    svg = page.locator("svg.lines:visible").first
    svg.scroll_into_view_if_needed()
    spot = svg.evaluate("""svg => {
      const line = [...svg.querySelectorAll("g.line:not(.rest):not(.baseline)")].pop();
      const [x, y] = line.querySelector(".stroke").getAttribute("d").slice(1).split("L")[0].split(" ").map(Number);
      const box = svg.getBoundingClientRect();
      return [line.dataset.method, box.left + x * box.width / svg.viewBox.baseVal.width, box.top + y];
    }""")
    page.mouse.move(spot[1], spot[2])
    assert svg.evaluate("svg => [...svg.querySelectorAll('g.lit')].length") == 1
    page.mouse.move(2, 2)
    assert page.locator("g.line.lit").count() == 0


def test_the_keyboard_lights_and_pins_a_method_and_back_undoes_it(page: Any, published: Path) -> None:
    visit(page, published, "dataset/glyphs.html")
    page.locator("svg.lines g.line[tabindex='0']").first.focus()
    first = page.locator("g.line.lit").first.get_attribute("data-method")
    page.keyboard.press("ArrowDown")
    second = page.locator("g.line.lit").first.get_attribute("data-method")
    assert second != first
    named = page.locator("g.line.lit").first
    title, pin = named.locator("title").text_content(), named.get_attribute("aria-label")
    assert title.startswith(f"{second}: ")  # what pointing at it shows
    assert pin == f"Pin {title}"
    page.keyboard.press("Enter")
    assert f"pin={second}" in unquote_plus(page.url)
    assert page.locator(f"{GLYPHS} tr.pinned").count() == 1
    row = page.locator(f"{GLYPHS} tbody tr:not(.group):visible").first
    assert row.get_attribute("data-method") == second
    assert second.split(" · ")[0] == methods(page, GLYPHS)[0]
    assert page.locator("svg.lines:visible").first.locator("g.line.pinned").count() == 1
    page.go_back()
    assert "pin=" not in page.url
    assert page.locator("tr.pinned, g.line.pinned").count() == 0
    page.go_forward()
    assert page.locator(f"{GLYPHS} tr.pinned").count() == 1


def test_figures_show_the_best_or_a_family_and_zoom(page: Any, published: Path) -> None:
    visit(page, published, "dataset/glyphs.html")
    svg = page.locator("svg.lines:visible").first
    shown = "svg => [...svg.querySelectorAll('g.line:not(.baseline)')].filter(g => g.style.display !== 'none').length"
    ticks = "svg => [...svg.querySelectorAll('.scale text')].map(text => Number(text.textContent))"
    assert svg.evaluate(shown) > 20
    before = svg.evaluate(ticks)
    page.locator("[data-show]:visible").first.select_option("top")
    assert svg.evaluate(shown) == 10
    page.locator("[data-zoom]:visible").first.click()
    after = svg.evaluate(ticks)
    assert max(after) - min(after) < max(before) - min(before)
    page.locator("[data-show]:visible").first.select_option("family:proxy")
    families = svg.evaluate("svg => [...svg.querySelectorAll('g.line:not(.baseline)')]"
                            ".filter(g => g.style.display !== 'none').map(g => g.dataset.family)")
    assert set(families) == {"proxy"}
    visit(page, published, "dataset/" + page.url.rpartition("/")[2])
    assert page.locator("[data-zoom]:visible").first.get_attribute("aria-pressed") == "true"


def test_a_method_has_one_colour(page: Any, published: Path) -> None:
    colours: dict[str, set[str]] = {}
    for path in ("index.html", "dataset/glyphs.html", "union/glyphs-uneven.html"):
        visit(page, published, path)
        for name, colour in page.evaluate("""() => [
            ...[...document.querySelectorAll("g.line:not(.baseline)")].map(
              g => [g.dataset.method, getComputedStyle(g).getPropertyValue("--c")]),
            ...[...document.querySelectorAll("tr[data-method]:not(.baseline) .swatch")].map(
              mark => [mark.closest("tr").dataset.method, getComputedStyle(mark).getPropertyValue("--c")])]"""):
            colours.setdefault(name.split(" · ")[0], set()).add(colour.strip())
    assert len(colours) > 40
    assert all(len(some) == 1 for some in colours.values())


def choose(page: Any, board: str, kind: str, value: str) -> None:
    menu = page.locator(f"{board} [data-menu={kind}]")
    if menu.get_attribute("open") is None:
        menu.locator("summary").click()
    menu.locator(f"input[value='{value}']").click()


def test_facets_add_inside_a_group_and_narrow_across(page: Any, published: Path) -> None:
    visit(page, published, "index.html")
    every = len(methods(page, AGS))
    choose(page, AGS, "family", "ranking")
    ranking = len(methods(page, AGS))
    choose(page, AGS, "family", "proxy")
    both = len(methods(page, AGS))
    assert ranking < both < every
    choose(page, AGS, "backbone", "efficientnet_lite2")
    narrowed = len(methods(page, AGS))
    assert 0 < narrowed < both
    ranks = [int(text) for text in column(page, "rank", AGS) if text.isdigit()]
    assert ranks == list(range(1, narrowed + 1))
    assert "among the rows of this choice" in page.locator(AGS).inner_text()
    visit(page, published, page.url.rpartition("/")[2])
    assert len(methods(page, AGS)) == narrowed
    page.locator(f"{AGS} [data-reset]").click()
    assert len(methods(page, AGS)) == every


def test_all_backbones_stand_together_without_ranks(page: Any, published: Path) -> None:
    visit(page, published, "index.html")
    assert page.locator(f"{AGS} tr.group:visible").count() == 2
    assert not page.locator(f"{AGS} th[data-key=backbone]").is_visible()
    page.locator(f"{AGS} [data-together]").click()
    assert page.locator(f"{AGS} tr.group:visible").count() == 0
    assert not page.locator(f"{AGS} th[data-key=rank]").is_visible()
    assert page.locator(f"{AGS} th[data-key=backbone]").is_visible()
    scores = [float(text.split(" ")[0]) for text in column(page, "glyphs", AGS)]
    assert scores == sorted(scores, reverse=True)
    page.locator(f"{AGS} [data-together]").click()
    assert page.locator(f"{AGS} tr.group:visible").count() == 2


def test_sorting_a_union_leads_with_the_better_group(page: Any, published: Path) -> None:
    visit(page, published, "union/glyphs-uneven.html")
    board = "[data-board='glyphs-uneven']"
    page.locator(f"{board} th[data-key=harmonic] button").click()
    scores = [float(text.split(" ")[0]) for text in column(page, "harmonic", board) if text[:1].isdigit()]
    assert scores[0] == max(scores)
    names = page.locator(f"{board} thead th:visible").all_inner_texts()
    assert len(names) == len(set(names) | {"vs frozen"}) + names.count("vs frozen") - 1


def test_a_link_opened_in_the_same_tab_takes_effect(page: Any, built: Path) -> None:
    visit(page, built, "index.html")
    before = methods(page)
    page.evaluate("() => { location.hash = '#sort.ags-demo-recall-1=mean&filter.ags-demo-recall-1=s2sd'; }")
    page.wait_for_function("() => document.querySelector('[data-filter]').value === 's2sd'")
    assert {name.split(" ")[0] for name in methods(page)} == {"s2sd"}
    page.go_back()
    page.wait_for_function("() => document.querySelector('[data-filter]').value === ''")
    assert methods(page) == before


def test_the_metric_follows_a_link_and_changes_the_curve(page: Any, built: Path) -> None:
    visit(page, built, "index.html")
    page.get_by_role("button", name="map@1000").first.click()
    assert page.locator(".hero .tab[data-tab='map@1000'] svg").is_visible()
    assert not page.locator(".hero .tab[data-tab='recall@1']").is_visible()
    page.locator("h2").get_by_role("link", name="glyphs", exact=True).first.click()
    page.wait_for_url("**/dataset/glyphs.html*")
    assert "metric=map" in page.url
    assert page.locator("[data-board='glyphs-map-1000']").is_visible()
    assert not page.locator("[data-board='glyphs-recall-1']").is_visible()
    page.go_back()
    page.wait_for_url("**/index.html*")
    assert page.locator("[data-board='ags-demo-map-1000']").is_visible()


def test_what_is_pinned_is_compared(page: Any, built: Path) -> None:
    visit(page, built, "index.html")
    pins = page.locator(f"{BOARD} tbody .pin:visible")
    chosen = []
    for place in (2, 3):
        chosen.append(pins.nth(place).get_attribute("aria-label").removeprefix("Pin "))
        pins.nth(place).click()
    page.get_by_role("link", name="Compare", exact=True).click()
    page.wait_for_url("**/compare.html#pin=*")
    told = page.locator("[data-compare-sum]").inner_text()
    assert all(name.split(" ")[0] in told for name in chosen), (chosen, told)


def test_menus_close_on_escape_and_outside(page: Any, built: Path) -> None:
    visit(page, built, "index.html")
    menu = page.locator(f"{BOARD} [data-menu=hide]")
    menu.locator("summary").click()
    assert menu.get_attribute("open") is not None
    page.keyboard.press("Escape")
    assert menu.get_attribute("open") is None
    assert page.evaluate("() => document.activeElement.tagName") == "SUMMARY"
    menu.locator("summary").click()
    page.locator("h1").click()
    assert menu.get_attribute("open") is None


def test_spare_columns_wait_to_be_asked_for(page: Any, published: Path) -> None:
    visit(page, published, "index.html")
    heads = page.locator(f"{AGS} thead th:visible").all_inner_texts()
    assert heads[:8] == ["Rank", "Method", "AGS", "95 %", "vs frozen", "Nearest", "Farthest", "Kept, %"]
    assert not page.locator(f"{AGS} th[data-key=gap]").is_visible()
    page.locator(f"{AGS} [data-menu=hide] summary").click()
    page.locator(f"{AGS} [data-menu=hide] input[value=gap]").check()
    assert page.locator(f"{AGS} th[data-key=gap]").is_visible()
    assert not page.locator(f"{AGS} th[data-key='gap:validation']").is_visible()
    page.keyboard.press("Escape")
    page.locator(f"{AGS} th[data-key=kept] button").click()
    kept = [float(text.replace(",", "")) for text in column(page, "kept", AGS) if re.match(r"\d", text)]
    assert kept[0] == max(kept)


def test_download_and_csv_are_one_file_and_numbers_are_numbers(page: Any, published: Path) -> None:
    visit(page, published, "index.html")
    page.locator(f"{AGS} [data-format]").select_option("csv")
    saved = []
    for selector in ("[data-download]", "[data-file]"):
        with page.expect_download() as download:
            page.locator(f"{AGS} {selector}").click()
        saved.append((download.value.suggested_filename, Path(download.value.path()).read_bytes()))
    file = published / "data" / "ags-glyphs-recall-1.csv"
    assert saved[0] == saved[1] == (file.name, file.read_bytes())
    whole = pd.read_csv(file)
    page.locator(f"{AGS} [data-copy]").click()
    page.wait_for_function("() => document.getElementById('announce').textContent.startsWith('Copied')")
    lines = page.evaluate("() => navigator.clipboard.readText()").splitlines()
    copied = pd.DataFrame([line.split(",") for line in lines[1:]], columns=lines[0].split(","))
    assert set(copied) <= set(whole)
    for key in ("glyphs", "nearest", "kept"):
        numbers = pd.to_numeric(copied[key])  # a share that is not defined is an empty cell in both
        assert numbers.tolist() == pytest.approx(whole[key].tolist(), rel=1e-5, nan_ok=True)


def test_the_header_stays_and_nothing_is_cut_on_a_phone(page: Any, published: Path) -> None:
    visit(page, published, "index.html")
    page.locator(f"{AGS} tbody tr").nth(30).scroll_into_view_if_needed()
    page.mouse.wheel(0, 300)
    page.wait_for_timeout(200)
    assert 0 <= page.locator(f"{AGS} thead th").first.bounding_box()["y"] < 100
    paths = ("index.html", "dataset/glyphs.html", "union/glyphs-uneven.html", "dataset/cars.html")  # cars: long names
    for path, width in product(paths, (390, 320)):
        page.set_viewport_size({"width": width, "height": 844})
        visit(page, published, path)
        for wide, inner, texts in page.locator("svg.lines:visible").evaluate_all("""all => all.map(svg => {
            svg.querySelectorAll("g.line").forEach(line => line.classList.add("lit"));  // in letters that are wider
            const box = svg.getBoundingClientRect();
            const shown = [...svg.querySelectorAll("text.name, text.head, text.below")].filter(
              text => getComputedStyle(text).display !== "none" && text.parentNode.style.display !== "none");
            return [svg.parentNode.clientWidth, svg.parentNode.scrollWidth, shown.map(text => {
              const place = text.getBoundingClientRect();
              return [text.textContent, Math.max(place.right - box.right, box.left - place.left)]; })];
        })"""):
            assert inner <= wide, path
            assert [text for text in texts if text[1] > 0.5] == [], (path, width)


@pytest.mark.parametrize("path", ["index.html", "dataset/glyphs.html", "union/glyphs-uneven.html"])
def test_print_holds_every_column_and_starts_on_the_first_page(page: Any, published: Path, path: str) -> None:
    visit(page, published, path)
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 1032, "height": 700})  # A4 landscape less its margins
    for wide, there in page.locator(".scroll:visible").evaluate_all(
            "all => all.map(box => [box.querySelector('table').getBoundingClientRect().right, innerWidth])"):
        assert wide <= there + 1
    if path == "index.html":  # else nothing but the name of the site stands on the first page
        assert bottom(page, ".hero") < 700
    assert page.locator("main section").nth(1).evaluate("one => getComputedStyle(one).breakInside") == "auto"
    assert len(page.pdf()) > 10_000
