"""The site in a real browser: sort, filter, pin, choose, compare, copy, the state in the address, dark and narrow."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from reports import records, site
from reports.analysis.results import Results
from reports.tables.formats import tex
from tests.browser.conftest import METHODS
from tests.sample_records import make_record


def visit(page: Any, built: Path, path: str) -> None:
    page.goto("about:blank")  # a change of the hash alone would not load the page again
    page.goto(f"{built.as_uri()}/{path}")


BOARD = "[data-board^='ags-'][data-board$='-recall-1']"


def methods(page: Any, board: str = BOARD) -> list[str]:
    rows = page.locator(f"{board} tbody tr:not(.group):visible th[scope=row]")
    return [" ".join(text.split()) for text in rows.all_inner_texts()]


def column(page: Any, key: str, board: str = BOARD) -> list[str]:
    heads = page.locator(f"{board} thead th").evaluate_all("heads => heads.map(head => head.dataset.key)")
    return page.locator(f"{board} tbody tr:not(.group):visible").evaluate_all(
        "(rows, i) => rows.map(row => row.cells[i].textContent.trim())", heads.index(key))


def test_every_page_loads_without_an_error_and_is_no_wider_than_a_phone(page: Any, built: Path) -> None:
    for path in sorted(built.rglob("*.html")):
        page.set_viewport_size({"width": 1280, "height": 900})
        visit(page, built, str(path.relative_to(built)))
        assert page.title().endswith("oodml")
        assert page.locator("h1").count() == 1
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 360, path.name


def test_columns_sort_both_ways_and_say_so(page: Any, built: Path) -> None:
    visit(page, built, "index.html")
    before = methods(page)
    head = page.locator(f"{BOARD} th[data-key=glyphs]")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    scores = [float(text.split(" ")[0]) for text in column(page, "glyphs") if re.match(r"\d", text)]
    assert scores == sorted(scores, reverse=True)
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert page.locator(f"{BOARD} th[aria-sort]").count() == 1
    assert "Sorted by" in page.locator("#announce").inner_text()
    visit(page, built, page.url.rpartition("/")[2])
    assert methods(page) != before
    assert page.locator(f"{BOARD} th[data-key=glyphs]").get_attribute("aria-sort") == "ascending"
    page.locator(f"{BOARD} [data-reset]").click()
    assert methods(page) == before
    assert "sort" not in page.url


def test_rows_are_filtered_by_text_and_by_facet(page: Any, built: Path) -> None:
    visit(page, built, "index.html")
    page.locator(f"{BOARD} [data-filter]").fill("s2sd")
    assert {name.split(" ")[0] for name in methods(page)} == {"s2sd"}
    assert "filter.ags-demo-recall-1=s2sd" in page.url
    page.locator(f"{BOARD} [data-filter]").fill("")
    page.locator(f"{BOARD} [data-menu=level] summary").click()
    page.locator(f"{BOARD} [data-menu=level] input[value=reported]").check()
    assert all("reported" in name for name in methods(page))
    visit(page, built, page.url.rpartition("/")[2])
    assert page.locator(f"{BOARD} [data-menu=level] input[value=reported]").is_checked()
    assert all("reported" in name for name in methods(page))


def test_the_metric_is_switched_everywhere_and_kept(page: Any, built: Path) -> None:
    visit(page, built, "index.html")
    page.get_by_role("button", name="map@1000").first.click()
    assert not page.locator(BOARD).is_visible()
    assert page.locator("[data-board='ags-demo-map-1000']").is_visible()
    visit(page, built, page.url.rpartition("/")[2])
    assert page.locator("[data-board='ags-demo-map-1000']").is_visible()


def test_datasets_are_taken_away_and_the_mean_follows(page: Any, built: Path) -> None:
    visit(page, built, "index.html")
    page.locator(f"{BOARD} [data-menu=without] summary").click()
    page.get_by_role("checkbox", name="cars").first.uncheck()
    assert not page.locator(f"{BOARD} th[data-key=cars]").is_visible()
    assert not page.locator(f"{BOARD} th[data-key=gain]").is_visible()
    mean = [text.split(" ±")[0] for text in column(page, "mean")]
    assert mean == [text.split(" ")[0] if text[:1].isdigit() else "0 of 1" for text in column(page, "glyphs")]
    ranks = [text for text in column(page, "rank") if text.isdigit()]
    assert ranks == [str(i + 1) for i in range(len(METHODS) - 1)]
    assert "Custom: over glyphs alone" in page.locator(BOARD).inner_text()
    page.locator(f"{BOARD} [data-reset]").click()
    assert page.locator(f"{BOARD} th[data-key=cars]").is_visible()
    assert "Custom" not in page.locator(BOARD).inner_text()


def test_the_harmonic_mean_is_computed_again(page: Any, built: Path) -> None:
    visit(page, built, "union/glyphs-union.html#without.glyphs-union=latin|greek|cyrillic|armenian|georgian|arrows")
    board = "[data-board='glyphs-union']"
    rows = page.locator(f"{board} tbody tr:not(.group)").evaluate_all(
        "rows => rows.map(row => Object.fromEntries([...row.cells].map((cell, i) => "
        "[row.closest('table').tHead.rows[0].cells[i].dataset.key, cell.dataset.v])))")
    for row in rows:
        parts = [float(row["operators"]), float(row["shapes"])]
        assert float(row["harmonic"]) == pytest.approx(2 / (1 / parts[0] + 1 / parts[1]))
        assert float(row["arithmetic"]) == pytest.approx(sum(parts) / 2)


def test_columns_are_hidden_and_rows_pinned(page: Any, built: Path) -> None:
    visit(page, built, "index.html")
    page.locator(f"{BOARD} [data-menu=hide] summary").click()
    page.locator(f"{BOARD} [data-menu=hide] input[value=parameters]").uncheck()
    assert not page.locator(f"{BOARD} th[data-key=parameters]").is_visible()
    page.locator(f"{BOARD} [data-menu=hide] summary").click()
    page.get_by_role("button", name="Pin margin", exact=True).first.click()
    assert methods(page)[0] == "margin"
    page.locator(f"{BOARD} [data-filter]").fill("s2sd")
    assert methods(page)[0] == "margin"
    visit(page, built, page.url.rpartition("/")[2])
    assert methods(page)[0] == "margin"
    assert not page.locator(f"{BOARD} th[data-key=parameters]").is_visible()


def test_what_is_shown_is_copied_and_saved(page: Any, built: Path) -> None:
    visit(page, built, "index.html#filter.ags-demo-recall-1=margin&hide.ags-demo-recall-1=seconds")
    for form, start in (("csv", "rank,method,mean"), ("md", "| Rank | Method | Mean"), ("latex", "% needs")):
        page.locator(f"{BOARD} [data-format]").select_option(form)
        page.locator(f"{BOARD} [data-copy]").click()
        page.wait_for_function("() => document.getElementById('announce').textContent.startsWith('Copied')")
        text = page.evaluate("() => navigator.clipboard.readText()")
        assert text.startswith(start)
        assert "margin" in text
        assert "s2sd" not in text
        assert "Time" not in text
        assert "seconds" not in text
        if form == "csv":  # its download is the whole file
            continue
        with page.expect_download() as saved:
            page.locator(f"{BOARD} [data-download]").click()
        assert Path(saved.value.path()).read_text() == text
    assert r"\toprule" in text
    assert r"\end{tabular}" in text


def test_bold_in_latex_is_the_tie_group_of_the_page(page: Any, built: Path) -> None:
    visit(page, built, "dataset/glyphs.html")
    board = "[data-board='glyphs-recall-1']"
    page.locator(f"{board} [data-format]").select_option("latex")
    page.locator(f"{board} [data-copy]").click()
    page.wait_for_function("() => document.getElementById('announce').textContent.startsWith('Copied')")
    text = page.evaluate("() => navigator.clipboard.readText()")
    assert text.count(r"\textbf{") == page.locator(f"{board} td.best").count() > 1
    assert text.count(r"\underline{") == page.locator(f"{board} td.second").count()


def test_latex_of_the_page_writes_letters_as_the_command_does(page: Any, built: Path) -> None:
    visit(page, built, "dataset/glyphs.html")
    board = "[data-board='glyphs-recall-1']"
    name = "[2pt] a_b · 50 % ± 1 – −3 {x}~^\\"
    page.locator(f"{board} tbody tr:not(.group) th").first.evaluate("(cell, name) => cell.textContent = name", name)
    page.locator(f"{board} [data-format]").select_option("latex")
    page.locator(f"{board} [data-copy]").click()
    page.wait_for_function("() => document.getElementById('announce').textContent.startsWith('Copied')")
    assert f" & {tex(name)} & " in page.evaluate("() => navigator.clipboard.readText()")


def test_rows_of_one_hue_have_two_where_they_are_compared(page: Any, published: Path) -> None:
    visit(page, published, "compare.html")
    alike = page.evaluate("""() => {
      const { ids, hues } = JSON.parse(document.getElementById("compare-data").textContent);
      return ids.filter((id, i) => hues[i] === hues[0]);
    }""")[:3]
    assert len(alike) > 1
    visit(page, published, f"compare.html#pin={','.join(alike)}")
    swatches = page.locator("[data-compare-choices] .swatch").evaluate_all(
        "all => all.map(one => one.style.getPropertyValue('--c'))")
    assert len(set(swatches)) == len(swatches) == len(alike)


def test_methods_are_compared_and_the_choice_lies_in_the_address(page: Any, built: Path) -> None:
    visit(page, built, "compare.html#pin=margin,s2sd")
    told = page.locator("[data-compare-sum]").inner_text()
    counts = re.search(r"s2sd against margin: (\d+) wins?, (\d+) ties?, (\d+) loss(?:es)?", told)
    assert counts
    board = "[data-board='compare-chosen']"
    cells = page.locator(f"{board} tbody tr").evaluate_all(
        "rows => rows.map(row => [row.cells[0].textContent, row.cells[1].textContent])")
    counted = [cell for cell in cells if cell[0] != "glyphs-union" or cell[1] == "harmonic"]  # a union counts once
    assert sum(map(int, counts.groups())) == len(counted) > 10
    assert len(cells) > 20
    static = page.locator("#table-compare tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent.trim()))")
    heads = page.locator("#table-compare thead th").all_inner_texts()
    cell = next(row for row in static if row[0] == "s2sd")[heads.index("margin")]
    assert cell == "/".join(counts.groups())
    search = page.get_by_label("Add a method")
    search.fill("proxyanchor")
    search.press("Enter")
    assert "proxyanchor" in page.url
    assert page.locator(f"{board} thead th").count() == 8
    for label in ("margin", "s2sd"):
        page.get_by_role("button", name=f"Take {label} away").click()
    assert "at least two" in page.locator("[data-compare-sum]").inner_text()
    assert page.locator("[data-compare-figures] figure").count() == 0


def rows_on(page: Any, ladder: bool) -> list[str]:
    """The ids of two rows of one backbone that the page of comparisons has on a ladder, or on a union alone."""
    return page.evaluate("""(ladder) => {
      const { ids, cells, backbones } = JSON.parse(document.getElementById("compare-data").textContent);
      const kinds = ids.map((id, i) => new Set(cells.filter((cell) => cell.scores[i] !== null).map((cell) =>
        cell.frd !== null ? "ladder" : cell.union ? "union" : "split")));
      const fits = ids.map((id, i) => i).filter((i) => kinds[i].has("ladder") === ladder && kinds[i].has("union")
        && !(ladder === false && kinds[i].size > 1));
      return fits.filter((i) => backbones[i] === backbones[fits[0]]).slice(0, 2).map((i) => ids[i]);
    }""", ladder)


def test_differences_are_drawn_with_bands_and_no_column_is_empty(page: Any, published: Path) -> None:
    visit(page, published, "compare.html")
    on_ladder, on_union = rows_on(page, True), rows_on(page, False)
    visit(page, published, f"compare.html#pin={'|'.join(on_ladder)}")
    assert page.locator("[data-compare-figures] figure h3").all_inner_texts()[0] == "glyphs"
    assert page.locator("[data-compare-figures] [data-band]").count() >= 2
    visit(page, published, f"compare.html#pin={','.join(on_union)}")
    assert "Fréchet distance" not in page.locator("[data-board='compare-chosen'] thead th").all_inner_texts()
    cells = page.locator("[data-board='compare-chosen'] tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent.trim()))")
    assert len(cells) == 10
    assert not any(text in ("", "–") for row in cells for text in row)


def test_a_method_begins_with_its_curve_and_leads_to_compare(page: Any, published: Path) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    visit(page, published, "compare.html")
    name = rows_on(page, True)[0]
    visit(page, published, f"method/{name}.html")
    curve = page.locator(".own").first.bounding_box()
    assert curve["y"] + curve["height"] < 900
    assert page.get_by_text("Kept at the farthest split").first.bounding_box()["y"] < 900
    label = page.title().removesuffix(" · oodml")
    page.locator(".rivals a", has_text="Compare").first.click()
    page.wait_for_url("**/compare.html#*")  # until it is loaded, its scripts have not run
    assert label in page.locator("[data-compare-choices]").inner_text()
    method, _, tail = label.partition(" · ")  # rivals have protocol and backbone in common, which is said once
    assert f"against {method} ({tail})" in page.locator("[data-compare-sum]").inner_text()


def contrast(page: Any, selector: str) -> float:
    """The WCAG ratio of an element's text to the first opaque ground behind it."""
    return page.locator(selector).first.evaluate("""element => {
      const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
      const linear = (v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
      const light = (colour) => [0.2126, 0.7152, 0.0722].reduce((sum, w, i) => sum + w * linear(colour[i] / 255), 0);
      let ground = element;
      const opaque = (node) => {
        const colour = numbers(getComputedStyle(node).backgroundColor);
        return colour.length < 4 || colour[3] === 1;
      };
      while (ground && !opaque(ground)) ground = ground.parentElement;
      const a = light(numbers(getComputedStyle(element).color));
      const b = light(numbers(getComputedStyle(ground || document.documentElement).backgroundColor));
      return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    }""")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_can_be_read(page: Any, built: Path, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    visit(page, built, "index.html")
    for selector in ("h1", ".lead", f"{BOARD} td[data-v]", f"{BOARD} td.best", f"{BOARD} .note", ".top nav a",
                     "footer p", f"{BOARD} .baseline td", f"{BOARD} .menu summary", ".rule a"):
        assert contrast(page, selector) >= 4.5, selector


def test_dark_can_be_chosen_and_is_kept(page: Any, built: Path) -> None:
    page.emulate_media(color_scheme="light")
    visit(page, built, "index.html")
    ground = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    page.locator("[data-theme-toggle]").click()
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") != ground
    visit(page, built, "about.html")
    assert page.evaluate("() => document.documentElement.dataset.theme") == "dark"


def test_no_control_is_too_small_for_a_finger(page: Any, built: Path) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    visit(page, built, "index.html")
    small = page.locator("button:visible, summary:visible, select:visible").evaluate_all(
        "all => all.map(e => e.getBoundingClientRect()).filter(b => b.height < 23.5).length")
    assert small == 0


def test_the_keyboard_reaches_the_content(page: Any, built: Path) -> None:
    visit(page, built, "index.html")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.url.endswith("#main")


def test_pages_read_without_scripts(browser: Any, built: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto(f"{built.as_uri()}/index.html")
    assert opened.locator("[data-board='ags-demo-recall-1'] tbody tr").first.is_visible()
    assert opened.locator("[data-board='ags-demo-map-1000'] tbody tr").first.is_visible()
    assert not opened.locator(".tools").first.is_visible()
    context.close()


def test_menus_open_on_the_page(page: Any, built: Path, published: Path) -> None:
    boards = ((built, BOARD), (published, "[data-board='ags-glyphs-recall-1']"),
              (published, "[data-board='home-glyphs-uneven']"))
    for (where, board), width in product(boards, (1400, 800, 390)):
        if width == 1400:
            visit(page, where, "index.html")
        page.set_viewport_size({"width": width, "height": 900})
        for summary in page.locator(f"{board} .menu summary").all():
            summary.click()
            boxes = page.locator(f"{board} .menu[open] > div, {board} .menu[open] input").evaluate_all(
                "all => all.map(one => one.getBoundingClientRect()).map(box => [box.left, box.right, box.width])")
            assert all(left >= 0 and right <= width for left, right, _ in boxes)
            assert all(wide < 30 for _, _, wide in boxes[1:])
            summary.click()


def test_a_pin_is_of_one_row_and_reset_takes_it_away(page: Any, tmp_path: Path) -> None:
    for backbone, score in (("conv4", 0.5), ("resnet18", 0.6)):
        for method in ("margin", "arcface"):
            for split in range(1, 6):
                made = make_record("glyphs", split, method, 0, score - 0.01 * split,
                                   backbone={"name": backbone, "weights": None})
                records.write(tmp_path / "runs" / f"{backbone}-{method}-{split}", made)
    frame, lost = records.scan(tmp_path / "runs")
    visit(page, site.build(Results(frame), lost, tmp_path / "site").parent, "index.html")
    before = list(zip(column(page, "backbone"), column(page, "method")))
    worst = page.locator(f"{BOARD} tbody tr:not(.group) .pin").last
    worst.click()
    pinned = page.locator(f"{BOARD} tr.pinned")
    assert pinned.count() == 1
    # it leads the ranking of its own backbone, and no other row of its name is pinned
    after = list(zip(column(page, "backbone"), column(page, "method")))
    assert sorted(after) == sorted(before)
    assert [name for name, _ in after] == [name for name, _ in before]
    assert after[2] == before[3]
    assert page.locator(f"{BOARD} .pin[aria-pressed=true]").count() == 1
    page.locator(f"{BOARD} [data-reset]").click()
    assert list(zip(column(page, "backbone"), column(page, "method"))) == before
    assert page.locator(f"{BOARD} .pin[aria-pressed=true]").count() == 0
