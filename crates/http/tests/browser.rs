//! Directory pages in a browser: light, dark, on a phone, filtered, without console messages.

mod chromium;
mod common;

use chromium::Browser;
use common::{MemFs, Running, Thing};
use dentree_testing::wait_until;

fn site() -> Running {
    let file = |len| Thing::File(vec![b'x'; len]);
    let mut lines = vec![
        ("etc", Thing::Dir),
        ("etc/ssh", Thing::Dir),
        ("etc/ssh/sshd_config", file(3_223)),
        ("boot", Thing::Dir),
        ("home", Thing::Dir),
        ("lib", Thing::Link("usr/lib")),
        ("usr", Thing::Dir),
        (
            "a rather long file name with spaces, ümläuts and 日本語 in it, so that it has to wrap on a phone.tar.gz",
            common::large(1 << 31),
        ),
        ("<b>&amp;\"quoted\"", file(0)),
        ("README.md", file(12_345)),
        ("vmlinuz-6.1.0-18-amd64", common::large(8_152_768)),
        ("initctl", Thing::Fifo),
        ("many", Thing::Dir),
    ];
    lines.extend((0..1500).map(|number| (&*format!("many/file-{number:04}").leak(), file(number))));
    Running::with(MemFs::new(lines), |options| {
        options.archive = Some(Box::new(|path, to| to.write_all(&path.repeat(100_000))));
    })
}

const SHOWN: &str = "[...document.querySelectorAll('tbody tr')].filter(row => row.offsetHeight > 0).length";

/// Start of the first row's name.
const FIRST: &str = "document.querySelector('tbody .name').textContent.slice(0, 23).replace('/', '')";

/// Least contrast of text by WCAG.
const CONTRAST: &str = r#"
    (() => {
        const parse = (color) => color.match(/[\d.]+/g).map(Number);
        const light = (color) => {
            const [r, g, b] = parse(color).map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const ground = (node) => {
            const color = getComputedStyle(node).backgroundColor;
            return parse(color)[3] === 0 && node.parentElement ? ground(node.parentElement) : color;
        };
        const contrasts = [...document.querySelectorAll("a, p, th, td, span, bdi, input, button")].map((node) => {
            const [a, b] = [light(getComputedStyle(node).color), light(ground(node))].sort((a, b) => b - a);
            return (a + 0.05) / (b + 0.05);
        });
        return Math.min(...contrasts);
    })()"#;

#[test]
fn directory_pages_are_readable_and_quiet_in_a_browser() {
    let Some(mut browser) = Browser::start() else { return };
    let site = site();
    let url = |path: &str| format!("http://{}{path}", site.address);
    let mut grounds = Vec::new();
    for (scheme, width) in [("light", 1100), ("dark", 1100), ("light", 360), ("dark", 360)] {
        browser.show(scheme, width);
        for (name, path) in [("root", "/"), ("deep", "/etc/ssh/"), ("many", "/many/?filter=file-00")] {
            browser.open(&url(path));
            browser.picture(&format!("{name}-{scheme}-{width}"));
            let contrast = browser.evaluate(CONTRAST).as_f64().unwrap();
            assert!(contrast >= 4.5, "{name} {scheme}: {contrast}");
            let overflow = browser.evaluate("document.documentElement.scrollWidth - innerWidth");
            assert_eq!(overflow, 0, "{name} scrolls sideways at {width}");
        }
        grounds.push(browser.evaluate("getComputedStyle(document.body).backgroundColor"));
    }
    assert_ne!(grounds[0], grounds[1], "dark is light");

    // A complete page filters while the user types.
    browser.open(&url("/"));
    browser.evaluate("document.querySelector('input').focus()");
    assert_eq!(browser.evaluate(SHOWN), 11);
    browser.type_text("READ");
    assert_eq!(browser.evaluate(SHOWN), 1);
    assert_eq!(browser.evaluate("document.querySelector('#count').textContent"), "1 of 11 entries");
    browser.picture("typed-dark-360");
    // An incomplete one asks the server.
    browser.open(&url("/many/"));
    assert_eq!(browser.evaluate(SHOWN), 1000);
    browser.evaluate("document.querySelector('input').focus()");
    browser.type_text("149");
    browser.wait_for_load();
    assert_eq!(browser.evaluate(SHOWN), 12);
    assert_eq!(browser.evaluate("document.activeElement.name"), "filter");
    // The filter keeps the order.
    browser.open(&url("/"));
    browser.click("th.size a");
    assert_eq!(browser.evaluate(FIRST), "a rather long file name");
    browser.picture("sorted-dark-360");
    browser.click("th.size a");
    assert_eq!(browser.evaluate(FIRST), "boot");
    browser.click("th.name a");
    browser.click("th.name a");
    assert_eq!(browser.evaluate(FIRST), "vmlinuz-6.1.0-18-amd64");
    browser.open(&url("/many/?sort=size&order=desc"));
    assert_eq!(browser.evaluate(FIRST), "file-1499");
    browser.evaluate("document.querySelector('input').focus()");
    browser.type_text("149");
    browser.wait_for_load();
    assert_eq!(browser.evaluate(FIRST), "file-1499");
    browser.open(&url("/etc/ssh/"));
    let dir = tempfile::tempdir().unwrap();
    browser.keep_downloads(dir.path());
    browser.evaluate("document.querySelector('a[download]').click()");
    let kept = dir.path().join("ssh.tar");
    wait_until("downloaded", || {
        browser.evaluate("0");
        std::fs::metadata(&kept).is_ok_and(|kept| kept.len() == 900_000)
    });
    // The form works without scripts.
    browser.call("Emulation.setScriptExecutionDisabled", serde_json::json!({"value": true}));
    browser.open(&url("/?filter=READ"));
    assert_eq!(site.get("/?filter=READ").text().matches("<tr class").count(), 1);
    browser.call("Emulation.setScriptExecutionDisabled", serde_json::json!({"value": false}));

    assert_eq!(browser.complaints, [""; 0]);
    // Control: a missing file and a policy violation do reach the console.
    browser.open(&url("/"));
    browser
        .evaluate("document.body.append(Object.assign(document.createElement('img'), {src: '/none.png'}))");
    wait_until("complained about", || {
        browser.evaluate("0");
        !browser.complaints.is_empty()
    });
}
