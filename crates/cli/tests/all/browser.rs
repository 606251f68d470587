//! The pages in a real browser: nothing is complained of or loaded from elsewhere, every picture is told in words,
//! nothing is wider than the screen, and the numbers are those of the JSON.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use serde_json::Value;

use crate::devtools::Browser;
use crate::report::{IOSTAT, SURFACE};
use crate::serve::Server;
use crate::skip::skip;
use crate::world::{READS, World};

/// Sizes to look at: a phone, a tablet, a desk.
const SIZES: [(u32, u32); 3] = [(360, 740), (768, 1024), (1440, 900)];

fn browser() -> Option<Browser> {
    Browser::start().map_err(skip).ok()
}

/// What must hold of any page, as a list of what does not.
const FAULTS: &str = r##"(() => {
  const faults = [];
  const root = document.scrollingElement;
  if (root.scrollWidth > root.clientWidth) {
    const wide = [...document.querySelectorAll("body *")]
      .filter((e) => e.getBoundingClientRect().right > root.clientWidth + 1 && !e.closest(".scroll"))
      .map((e) => e.tagName + "." + e.className);
    faults.push(`wider than the screen: ${root.scrollWidth} > ${root.clientWidth}: ${wide.slice(0, 5)}`);
  }
  for (const svg of document.querySelectorAll("svg")) {
    const told = svg.querySelector("title")?.textContent ?? "";
    if (svg.getAttribute("role") !== "img" || told.trim() === "" || !svg.getAttribute("aria-label")) {
      faults.push("a picture without words");
    }
  }
  if (document.documentElement.lang !== "en") faults.push("no language");
  if (document.querySelectorAll("main").length !== 1 || document.querySelectorAll("h1").length !== 1) {
    faults.push("not one main and one h1");
  }
  let level = 0;
  for (const heading of document.querySelectorAll("h1, h2, h3, h4")) {
    const next = Number(heading.tagName[1]);
    if (next > level + 1) faults.push(`a heading leaves out a level: ${heading.textContent}`);
    level = next;
  }
  for (const region of document.querySelectorAll(".scroll")) {
    if (region.tabIndex !== 0 || !region.getAttribute("aria-label")) faults.push("a region that no key reaches");
  }
  for (const cell of document.querySelectorAll("th")) {
    if (!cell.scope) faults.push(`a header without scope: ${cell.textContent}`);
  }
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  if (new Set(ids).size !== ids.length) faults.push("an id twice");
  // The ratio of contrast by WCAG 2, of text against the nearest background.
  const parse = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
  const luminance = ([r, g, b]) => {
    const part = (c) => ((c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const background = (e) => {
    for (; e !== null; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  for (const e of document.querySelectorAll("p, li, td, th, dt, dd, h1, h2, h3, a, button, .state, caption, text")) {
    if (e.textContent.trim() === "" || e.closest("noscript") !== null) continue;
    const svg = e.closest("svg");
    const ink = parse(getComputedStyle(e)[svg ? "fill" : "color"]);
    const paper = svg ? parse(getComputedStyle(svg.querySelector("rect")).fill) : background(e);
    const [a, b] = [luminance(ink), luminance(paper)].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) {
      faults.push(`hard to read: ${e.tagName} "${e.textContent.slice(0, 40)}", ${ink} on ${paper}`);
      break;
    }
  }
  return faults;
})()"##;

/// Looks at the open page in all sizes, light and dark.
fn look(browser: &mut Browser, name: &str) {
    for (width, height) in SIZES {
        for is_dark in [false, true] {
            browser.screen(width, height, is_dark);
            let faults = browser.evaluate(FAULTS);
            let scheme = if is_dark { "dark" } else { "light" };
            assert_eq!(faults, Value::Array(Vec::new()), "{name} at {width} in {scheme}");
            browser.screenshot(&format!("{name}-{width}-{scheme}"));
        }
    }
}

#[test]
fn the_page_of_results_is_whole_and_readable() {
    let Some(mut browser) = browser() else { return };
    let world = World::new(&[("jobs.yaml", READS), ("iostat.txt", IOSTAT), ("surface.json", SURFACE)]);
    let test = world.run(&["test", "jobs.yaml", "--backend", "null", "--duration", "1", "--format", "json"]).done();
    std::fs::write(world.path().join("test.json"), &test.out).unwrap();
    world.run(&["report", "test.json", "surface.json", "iostat.txt", "--format", "json"]).done();
    let url = format!("file://{}", world.path().join("report.html").display());
    browser.screen(1440, 900, false);
    browser.open(&url);
    look(&mut browser, "report");
    assert_eq!(browser.complaints(), Vec::<String>::new());
    assert_eq!(browser.requests(), [url], "a page that is whole loads nothing");
    let json = test.json();
    let iops = json["jobs"][0]["iops"].as_f64().unwrap().round() as u64;
    let shown = browser.evaluate("document.querySelector('#part-2-section-1 tbody tr').cells[3].textContent");
    assert_eq!(shown.as_str().unwrap().replace(',', ""), iops.to_string());
    // The keyboard reaches what scrolls, and it shows.
    browser.evaluate("document.querySelector('.scroll').focus()");
    assert_eq!(browser.evaluate("document.activeElement.className"), "scroll");
}

#[test]
fn the_live_page_is_readable_and_stays_fresh() {
    let Some(mut browser) = browser() else { return };
    // U is known by a model only: nothing ever queues on these disks.
    let models = ["--disk", "nvme0n1=i4i.2xlarge", "--disk", "nvme1n1=i4i.2xlarge"];
    let mut server =
        Server::start(&[&["--interval", "500ms", "--group", "data=nvme0n1,nvme1n1"][..], &models].concat());
    let url = format!("http://{}/", server.address());
    browser.screen(1440, 900, false);
    browser.open(&url);
    browser.wait_for("document.querySelectorAll('.tile .spark').length === 2");
    browser.wait_for("document.querySelectorAll('figure').length >= 3");
    look(&mut browser, "live");
    // The same numbers as in the JSON, of an interval that both show.
    let both = browser.evaluate(
        "(async () => {
           for (;;) {
             const before = await (await fetch('/api/stat')).json();
             const html = await (await fetch('/fragment')).text();
             const after = await (await fetch('/api/stat')).json();
             if (before.end_unix_ms !== after.end_unix_ms) continue;
             const page = new DOMParser().parseFromString(html, 'text/html');
             const table = [...page.querySelectorAll('table')].find((t) => t.caption.textContent.startsWith('Over '));
             const texts = (row) => [...row.cells].map((cell) => cell.textContent);
             const tiles = [...page.querySelectorAll('.tile')].map((tile) => tile.textContent);
             return { stat: before, tiles, headers: texts(table.tHead.rows[0]),
               rows: [...table.tBodies[0].rows].map(texts) };
           }
         })()",
    );
    assert_numbers_equal(&both);
    // Focus and place outlive what is refreshed.
    browser.screen(360, 740, false);
    browser.evaluate(
        "window.scrolled = [...document.querySelectorAll('.scroll')].find((e) => e.scrollWidth > e.clientWidth + 40); \
         scrolled.focus(); scrolled.scrollLeft = 40; window.left = scrolled.scrollLeft",
    );
    browser.wait_for("!document.contains(window.scrolled)");
    let kept = "document.activeElement.id === window.scrolled.id && document.activeElement.scrollLeft === window.left";
    assert_eq!(browser.evaluate(kept), true, "{}", browser.evaluate("document.activeElement.outerHTML.slice(0, 200)"));
    assert_eq!(browser.complaints(), Vec::<String>::new());
    let foreign: Vec<String> = browser.requests().into_iter().filter(|request| !request.starts_with(&url)).collect();
    assert_eq!(foreign, Vec::<String>::new());
    // A pause is a pause.
    browser.evaluate("document.getElementById('pause').click(); window.first = document.querySelector('main > *')");
    assert!(
        browser.evaluate("document.getElementById('connection').textContent").as_str().unwrap().starts_with("Paused")
    );
    browser.evaluate("new Promise((done) => setTimeout(done, 1500))");
    assert_eq!(browser.evaluate("document.contains(window.first)"), true);
    browser.evaluate("document.getElementById('pause').click()");
    browser.wait_for("document.getElementById('connection').textContent === 'Live'");
    server.stop();
    browser.wait_for("document.getElementById('connection').textContent.startsWith('Connection lost since ')");
    assert!(
        browser.evaluate("document.querySelectorAll('.tile').length").as_u64() == Some(4),
        "the last is still there"
    );
}

/// Each cell of the table of devices is the value of the JSON, and each tile has the verdict.
fn assert_numbers_equal(both: &Value) {
    let headers: Vec<&str> = both["headers"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let disks = both["stat"]["disk"].as_array().unwrap();
    let rows = both["rows"].as_array().unwrap();
    assert_eq!((disks.len(), rows.len()), (3, 3));
    let mut compared = 0;
    for (disk, row) in disks.iter().zip(rows) {
        let cell = |header: &str| {
            let at = headers.iter().position(|name| *name == header).unwrap_or_else(|| panic!("no column {header}"));
            row[at].as_str().unwrap().to_owned()
        };
        assert_eq!(cell("device"), disk["disk_device"].as_str().unwrap());
        let number = |text: &str| text.trim_end_matches(" %").parse::<f64>().ok();
        for (header, key, scale) in [
            ("U", "capacity_use", 100.0),
            ("S", "saturation", 100.0),
            ("r/s", "r/s", 1.0),
            ("w/s", "w/s", 1.0),
            ("rkB/s", "rkB/s", 1.0),
            ("wkB/s", "wkB/s", 1.0),
            ("r_await", "r_await", 1.0),
            ("w_await", "w_await", 1.0),
            ("aqu-sz", "aqu-sz", 1.0),
            ("util", "util", 1.0),
        ] {
            let (shown, json) = (number(&cell(header)), disk[key].as_f64().map(|value| value * scale));
            match (shown, json) {
                (None, None) => assert_eq!(cell(header), "n/a"),
                (Some(shown), Some(json)) => {
                    assert!((shown - json).abs() < 0.006, "{header}: {shown} on the page, {json} in JSON");
                    compared += 1;
                }
                other => panic!("{header}: {other:?}"),
            }
        }
        let words = match disk["verdict"].as_str().unwrap() {
            "degraded" => "degraded or throttled".to_owned(),
            verdict => verdict.replace('-', " "),
        };
        assert_eq!(cell("verdict"), words);
        let tiles = both["tiles"].as_array().unwrap();
        let name = disk["disk_device"].as_str().unwrap();
        assert!(tiles.iter().filter_map(Value::as_str).any(|tile| tile.contains(name) && tile.contains(&words)));
    }
    assert!(compared > 20, "{both}");
}
