//! What the documentation says about metrics is so.

use std::fs;
use std::path::Path;

use percolator_observe::{FAMILIES, Kind};

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file)).unwrap()
}

/// The names of metrics in a text.
fn names(text: &str) -> Vec<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("percolator_")).collect()
}

#[test]
fn the_guide_has_a_row_for_each_metric() {
    let guide = read("guide/watching.md");
    for family in FAMILIES {
        let kind = family.kind.name();
        let start = format!("| `{}` | {kind} |", family.name);
        assert_eq!(guide.lines().filter(|line| line.starts_with(&start)).count(), 1, "{start}");
    }
    let rows = guide.lines().filter(|line| line.starts_with("| `percolator_")).count();
    assert_eq!(rows, FAMILIES.len());
}

#[test]
fn the_dashboard_asks_only_for_metrics_that_there_are() {
    let dashboard: serde_json::Value = serde_json::from_str(&read("grafana.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut asked = Vec::new();
    for panel in panels {
        assert!(panel["title"].is_string() && panel["gridPos"]["w"].is_u64(), "{panel}");
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            let in_query = names(query);
            assert!(!in_query.is_empty(), "{query}");
            for name in in_query {
                let family = FAMILIES.iter().find(|family| family.name == name);
                let family = family.unwrap_or_else(|| panic!("there is no {name}: {query}"));
                // A sum is of no use without its rate.
                let is_rated = query.contains(&format!("rate({name}"));
                assert_eq!(is_rated, family.kind == Kind::Counter, "{query}");
                asked.push(name);
            }
        }
    }
    assert!(panels.len() >= 8 && asked.len() >= 12);
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        for name in names(variable["query"].as_str().unwrap_or_default()) {
            assert!(FAMILIES.iter().any(|family| family.name == name), "{name}");
        }
    }
}
