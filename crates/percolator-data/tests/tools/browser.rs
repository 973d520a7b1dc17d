//! The HTML report in a real browser: it loads without a network, its numbers are there, its pictures are
//! decoded, and nothing overflows a narrow window.
//!
//! The browser is Chromium, found as `chromium`, `chromium-browser`, `google-chrome`, or as the variable
//! PERCOLATOR_BROWSER says. Without one, the test says that it did not run.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use percolator_data::DataSet;
use percolator_data::inspect::{PictureOptions, html, pictures};
use percolator_data::scan::Progress;

use crate::common::{data, golden};
use crate::inspect::report;
use crate::need::missing;

/// Puts what the test asks into the page's title, once its pictures are decoded.
const PROBE: &str = "<script>window.onload = () => {
    const images = [...document.images];
    document.title = JSON.stringify({
        bars: document.querySelectorAll('#labels rect').length,
        lines: document.querySelector('#report').textContent.split('\\n').length,
        images: images.length,
        decoded: images.filter(image => image.naturalWidth > 0).length,
        alt: images.filter(image => image.alt.includes('label')).length,
        overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
        paper: getComputedStyle(document.body).backgroundColor,
        ink: getComputedStyle(document.body).color,
    });
};</script>";

fn browser() -> Option<OsString> {
    let names = ["chromium", "chromium-browser", "google-chrome"].map(OsString::from);
    let given = std::env::var_os("PERCOLATOR_BROWSER");
    given.into_iter().chain(names).find(|name| {
        let run = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        run.is_ok_and(|status| status.success())
    })
}

/// Runs a browser without a window, a network or a profile of its user.
fn run(browser: &OsString, profile: &Path, arguments: &[String]) -> String {
    let output = Command::new(browser)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
        .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=5000"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_report_is_whole_in_a_browser() {
    let Some(browser) = browser() else {
        return missing(
            "BROWSER",
            "there is no Chromium to show the report in; PERCOLATOR_BROWSER names one",
        );
    };
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("profile");
    let few = PictureOptions { count: 40, ..PictureOptions::default() };
    for path in [golden("jpg_mixed_lmdb"), golden("raw_lmdb"), data("tensorflow/jpg_color.tfrecord")] {
        let report = report(&path, true);
        let shown = pictures(&DataSet::open(&path).unwrap(), &few, &Progress::new()).unwrap();
        let page = html(&report, &shown);
        assert!(!page.contains("http") && !page.contains("<script"), "the page needs nothing else");
        let plain = folder.path().join("report.html");
        fs::write(&plain, &page).unwrap();
        if let Some(keep) = std::env::var_os("PERCOLATOR_KEEP_SCREENSHOTS") {
            keep_screenshots(&browser, &profile, &plain, Path::new(&keep), &report.path);
        }
        let probed = folder.path().join("probed.html");
        fs::write(&probed, page + PROBE).unwrap();
        let mut papers = Vec::new();
        for (size, dark) in [("1200,900", false), ("360,800", false), ("1200,900", true)] {
            let mut arguments = vec![format!("--window-size={size}"), "--dump-dom".to_owned()];
            if dark {
                arguments.push("--blink-settings=preferredColorScheme=0".to_owned());
            }
            arguments.push(format!("file://{}", probed.display()));
            let dom = run(&browser, &profile, &arguments);
            let title = dom.split_once("<title>").unwrap().1.split_once("</title>").unwrap().0;
            let found: serde_json::Value = serde_json::from_str(title).unwrap();
            let labels = report.labels.as_ref().unwrap().counts.len();
            assert_eq!(found["bars"], labels, "{title}");
            assert_eq!(
                (&found["images"], &found["decoded"]),
                (&shown.len().into(), &shown.len().into()),
                "{title}"
            );
            assert_eq!(found["alt"], shown.len(), "{title}");
            assert_eq!(found["overflow"], 0, "{size}: {title}");
            assert!(found["lines"].as_u64().unwrap() >= 8, "{title}");
            assert!(dom.contains(&format!("  records    {}\n", report.records)));
            assert_ne!(found["paper"], found["ink"]);
            papers.push(found["paper"].clone());
        }
        assert!(papers[0] == papers[1] && papers[0] != papers[2], "by night the paper is dark: {papers:?}");
    }
}

/// For people who look at the pages.
fn keep_screenshots(browser: &OsString, profile: &Path, page: &Path, folder: &Path, name: &str) {
    fs::create_dir_all(folder).unwrap();
    let name = Path::new(name).file_name().unwrap().to_string_lossy().into_owned();
    for (size, dark) in [("1200,1900", false), ("360,1800", false), ("1200,1900", true)] {
        let kind = if dark { "dark" } else { "light" };
        let file = folder.join(format!("{name}-{}-{kind}.png", size.replace(',', "x")));
        let mut arguments = vec![format!("--window-size={size}"), format!("--screenshot={}", file.display())];
        if dark {
            arguments.push("--blink-settings=preferredColorScheme=0".to_owned());
        }
        arguments.push(format!("file://{}", page.display()));
        run(browser, profile, &arguments);
    }
}
