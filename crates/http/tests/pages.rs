//! Directories as pages and JSON, and metrics.

mod common;

use common::{CHANGED_DATE, Client, MemFs, Running, Thing};
use std::collections::BTreeSet;

fn rows(page: &str) -> Vec<String> {
    let cells = page.split("<td class=\"name\"><a href=\"").skip(1);
    cells.map(|cell| cell.split('"').next().unwrap().to_owned()).collect()
}

#[test]
fn a_page_lists_names_in_order_with_size_and_time() {
    let site = Running::new(MemFs::new([
        ("b.txt", Thing::File(vec![b'x'; 1536])),
        ("a", Thing::Dir),
        ("c", Thing::Link("b.txt")),
        ("d", Thing::Fifo),
        ("a/deep", Thing::Dir),
        ("index.html", Thing::File(b"not the page".to_vec())),
    ]));
    let reply = site.get("/");
    let page = reply.text();
    assert_eq!(rows(&page), ["a/", "b.txt", "c", "index.html"]);
    assert!(
        page.contains("title=\"1536 bytes\">1.5 KiB<") && page.contains("datetime=\"2001-09-09T01:46:40Z\"")
    );
    assert!(page.contains("→ <bdi>b.txt</bdi>") && page.contains(">fifo<") && page.contains(">5 entries<"));
    let policy = reply.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-") && !policy.contains("unsafe"));
    let deep = site.get("/a/deep/").text();
    for crumb in [
        "<a href=\"/\"><bdi>disk.img<",
        "<a href=\"/a/\"><bdi>a<",
        "<bdi aria-current=\"page\">deep<",
        "href=\"../\"",
    ] {
        assert!(deep.contains(crumb), "{crumb}");
    }
}

#[test]
fn no_name_becomes_markup() {
    let evil = "\"><script>alert(1)<a href='x";
    let site = Running::new(MemFs::new([
        (evil.as_bytes(), Thing::Dir),
        (b"javascript:alert(1)", Thing::File(Vec::new())),
        (b"\xff\xfe&amp;", Thing::Link("<img src=x>")),
    ]));
    let page = site.get("/?filter=%22%3E%3Cscript%3E").text();
    assert_eq!(page.matches("<script>").count(), 1, "our own");
    assert_eq!(rows(&page).len(), 1);
    let all = site.get("/").text();
    assert!(!all.contains("<img") && !all.contains("href=\"javascript:"));
    for link in rows(&all) {
        assert!(matches!(site.get(&format!("/{link}")).status, 200 | 404), "{link}");
    }
    let inside = site.get(&format!("/{}", rows(&page)[0])).text();
    assert_eq!(inside.matches("<script>").count(), 1);
}

#[test]
fn the_filter_works_without_scripts() {
    let names = ["Makefile", "main.rs", "Straße", "STRASSE", "a+b c"];
    let site = Running::new(MemFs::new(names.map(|name| (name, Thing::File(Vec::new())))));
    let filtered = |filter: &str| rows(&site.get(&format!("/?filter={filter}")).text());
    assert_eq!(filtered("MA"), ["Makefile", "main.rs"]);
    assert_eq!(filtered("stra%C3%9F"), ["Stra%C3%9Fe"]);
    assert_eq!(filtered("a%2Bb+c"), ["a%2Bb%20c"]);
    assert_eq!(filtered("nothing"), [""; 0]);
    assert_eq!(filtered("").len(), 5);
    let page = site.get("/?filter=%22x").text();
    assert!(page.contains("value=\"&#34;x\"") && page.contains("0 of 5 entries"));
}

#[test]
fn a_large_directory_is_shown_a_page_at_a_time() {
    let names: Vec<String> = (0..2500).map(|number| format!("file {number}")).collect();
    let site = Running::new(MemFs::new(names.iter().map(|name| (name, Thing::File(Vec::new())))));
    for (query, expected) in
        [("", 2500), ("filter=1", names.iter().filter(|name| name.contains('1')).count())]
    {
        let (mut seen, mut pages, mut next) = (BTreeSet::new(), 0, Some(format!("?{query}")));
        while let Some(url) = next {
            let page = site.get(&format!("/{url}")).text();
            let names = rows(&page);
            assert!(names.len() <= 1000 && names.is_sorted());
            assert!(names.into_iter().all(|link| seen.insert(link)), "a name came twice");
            next = links(&page, "rel=\"next\"").pop();
            pages += 1;
        }
        assert_eq!((seen.len(), pages), (expected, expected.div_ceil(1000)));
    }
}

/// The rest of each address that contains `mark`.
fn links(page: &str, mark: &str) -> Vec<String> {
    let links =
        page.split("<a href=\"").skip(1).filter(|link| link.split("</a>").next().unwrap().contains(mark));
    links.map(|link| link.split('"').next().unwrap().replace("&amp;", "&")).collect()
}

#[test]
fn a_page_is_sorted_by_what_its_head_leads_to() {
    let sizes = [("c", 5), ("a", 7000), ("d", 0), ("b", 5)];
    let files = sizes.map(|(name, size)| (name, Thing::File(vec![b'x'; size])));
    let site = Running::new(MemFs::new(files.into_iter().chain([("dir", Thing::Dir)])));
    let mut page = site.get("/?filter=&sort=none").text();
    assert_eq!(rows(&page), ["a", "b", "c", "d", "dir/"]);
    for (title, expected, order) in [
        ("Size", ["a", "c", "b", "d", "dir/"], "descending"),
        ("Size", ["dir/", "d", "b", "c", "a"], "ascending"),
        ("Name", ["a", "b", "c", "d", "dir/"], "ascending"),
        ("Name", ["dir/", "d", "c", "b", "a"], "descending"),
        ("Changed", ["dir/", "d", "c", "b", "a"], "descending"),
    ] {
        let link = links(&page, title).pop().unwrap();
        page = site.get(&format!("/{link}")).text();
        assert_eq!(rows(&page), expected, "{link}");
        let head = page.split("<th ").skip(1).find(|head| head.contains("aria-sort")).unwrap();
        assert!(head.contains(title) && head.contains(&format!("\"{order}\"")), "{head}");
    }
    let page = site.get("/?sort=size&order=desc&filter=d").text();
    assert_eq!(rows(&page), ["d", "dir/"], "a filtered page is sorted");
    assert!(links(&page, "Size")[0].ends_with("sort=size&filter=d"));
    assert!(
        page.contains("<input type=\"hidden\" name=\"sort\" value=\"size\">"),
        "a filter keeps the order"
    );
}

#[test]
fn the_pages_of_a_sorted_directory_follow_each_other() {
    let files = (0..2500).map(|number| (format!("{number}"), Thing::File(vec![0; number * 7 % 100])));
    let site = Running::new(MemFs::new(files));
    for order in ["asc", "desc"] {
        let (mut sizes, mut next) = (Vec::new(), vec![format!("?sort=size&order={order}")]);
        while let Some(url) = next.pop() {
            let page = site.get(&format!("/{url}")).text();
            let shown = page.split("<data value=\"").skip(1);
            sizes.extend(shown.map(|size| size.split('"').next().unwrap().parse::<u64>().unwrap()));
            next = links(&page, "rel=\"next\"");
        }
        if order == "desc" {
            sizes.reverse();
        }
        assert!(sizes.len() == 2500 && sizes.is_sorted(), "{order}: {} rows", sizes.len());
    }
}

#[test]
fn a_directory_that_is_too_large_to_sort_by_size_is_sorted_by_name() {
    let files = (0..100_001).map(|number| (format!("{number:06}"), Thing::File(Vec::new())));
    let site = Running::new(MemFs::new(files));
    let page = site.get("/?sort=size&order=desc").text();
    assert!(page.contains(">100001 entries<") && rows(&page)[..2] == ["000000", "000001"]);
    assert!(links(&page, "Size").is_empty() && links(&page, "Name") == ["?order=desc"]);
    assert!(page.contains("more than 100000 entries are sorted by name only"));
}

const JSON: &str = "Accept: text/plain;q=0.5, application/json;q=0.9\r\n";

#[test]
fn a_directory_is_json_for_a_client_that_asks_for_it() {
    let site = Running::new(MemFs::new([
        (&b"b.txt"[..], Thing::File(vec![b'x'; 1536])),
        (b"a dir", Thing::Dir),
        (b"link", Thing::Link("b.txt")),
        (b"pipe", Thing::Fifo),
        (b"\"\xff\n", Thing::File(Vec::new())),
        (b"empty", Thing::Dir),
    ]));
    let page = site.get("/");
    let reply = site.ask("GET /", JSON);
    assert_eq!((reply.status, reply.header("content-type")), (200, "application/json"));
    for header in ["vary", "cache-control", "x-content-type-options"] {
        assert!(reply.header(header) == page.header(header) && !page.header(header).is_empty(), "{header}");
    }
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&reply.body).unwrap(),
        serde_json::json!([
            {"name": "b.txt", "url": "b.txt", "type": "file", "size": 1536, "mtime": CHANGED_DATE},
            {"name": "a dir", "url": "a%20dir/", "type": "directory", "mtime": CHANGED_DATE},
            {"name": "link", "url": "link", "type": "symlink", "mtime": CHANGED_DATE},
            {"name": "pipe", "url": "pipe", "type": "other", "mtime": CHANGED_DATE},
            {"name": "\"\u{fffd}\n", "name_hex": "22ff0a", "url": "%22%FF%0A", "type": "file", "size": 0,
             "mtime": CHANGED_DATE},
            {"name": "empty", "url": "empty/", "type": "directory", "mtime": CHANGED_DATE},
        ])
    );
    assert_eq!(site.ask("GET /empty/", JSON).text(), "[]\n");
    assert_eq!(site.ask("GET /b.txt", JSON).body.len(), 1536, "a file is what it is");
    let head = site.ask("HEAD /", JSON);
    assert_eq!((head.status, head.header("content-type")), (200, "application/json"));
    for browser in
        ["", "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n", "Accept: application/jsonp\r\n"]
    {
        assert!(site.ask("GET /", browser).text().starts_with("<!DOCTYPE html>"));
    }
}

#[test]
fn a_large_directory_is_one_array_of_json() {
    let names: Vec<String> = (0..5000).map(|number| format!("file {number:05}\u{1}")).collect();
    let site = Running::new(MemFs::new(names.iter().map(|name| (name, Thing::File(Vec::new())))));
    let reply = site.ask("GET /", JSON);
    let listed: Vec<serde_json::Value> = serde_json::from_slice(&reply.body).unwrap();
    assert!(listed.iter().map(|entry| entry["name"].as_str().unwrap()).eq(names.iter().map(String::as_str)));
    assert!(reply.header("transfer-encoding") == "chunked" && reply.body.len() > 3 * (128 << 10));
    let mut old = site.client();
    old.send(b"GET / HTTP/1.0\r\nAccept: application/json\r\n\r\n");
    let mut all = Vec::new();
    std::io::Read::read_to_end(&mut old.0, &mut all).unwrap();
    assert!(all.ends_with(&reply.body), "a client of HTTP/1.0 gets the same");
}

#[test]
fn figures_are_told_on_a_port_of_their_own() {
    let site =
        Running::with(MemFs::new([("dir", Thing::Dir), ("dir/file", Thing::File(vec![0; 10]))]), |options| {
            options.metrics = Some(([127, 0, 0, 1], 0).into());
            options.figures =
                Box::new(|| vec![dentree_http::Figure::counter("dentree_below_total", "Below.", 42)]);
        });
    for path in ["/dir/file", "/dir/file", "/none"] {
        site.get(path);
    }
    site.lines(3);
    let mut client = Client::new(site.metrics.unwrap());
    client.request("GET /metrics", "");
    let reply = client.reply(false);
    assert_eq!(reply.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    let text = reply.text();
    for line in [
        "dentree_http_requests_total{status=\"200\"} 2",
        "dentree_http_requests_total{status=\"404\"} 1",
        "dentree_http_requests_in_flight 0",
        "# TYPE dentree_names_walks_total counter",
        "dentree_below_total 42",
        "# TYPE dentree_names_entries gauge",
        "# TYPE dentree_inodes_hits_total counter",
    ] {
        assert!(text.lines().any(|told| told == line), "{line}\n{text}");
    }
    client.request("GET /dir/file", "");
    assert_eq!(client.reply(false).status, 404);
    assert_eq!(site.get("/metrics").status, 404, "on the files' port it is a file's name");
}
