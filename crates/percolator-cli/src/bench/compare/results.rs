//! What `percolator bench --json` has printed, of one build.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use percolator::shown;
use serde::Deserialize;
use serde_json::Value;

use crate::bench::figures::RoundFigures;

/// The results of several jobs.
#[derive(Debug, Default)]
pub(super) struct Results(Vec<JobResult>);

/// A job's rounds, and what they were measured on.
#[derive(Debug, PartialEq)]
pub(super) struct JobResult {
    pub(super) job: String,
    pub(super) setup: BTreeMap<&'static str, String>,
    pub(super) rounds: Vec<RoundFigures>,
}

/// What must be alike in two results, or else they differ for that reason too.
const SETUP: [&str; 11] = [
    "source_records",
    "source_shape",
    "batch_shape",
    "batch_size",
    "dtype",
    "layout",
    "transform_on",
    "devices",
    "threads",
    "seconds",
    "cold",
];

/// The most bytes of a file with results.
const BYTES_MAX: u64 = 64 << 20;

/// One line of JSON.
#[derive(Deserialize)]
struct Line {
    job: String,
    rounds: usize,
    /// Versions before 0.1.0 leave it out.
    each_round: Option<Vec<RoundFigures>>,
}

/// The figures of a line of one round.
#[derive(Deserialize)]
struct OnlyRound {
    records_per_s: Median,
    cpu_s_per_1000: f64,
    first_batch_ms: f64,
    share_of: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
struct Median {
    median: f64,
}

impl Results {
    pub(super) fn load(path: &Path) -> anyhow::Result<Self> {
        let name = shown::path(path);
        let mut text = String::new();
        let file = File::open(path).with_context(|| format!("{name}: cannot open the results"))?;
        let read = file.take(BYTES_MAX + 1).read_to_string(&mut text);
        read.with_context(|| format!("{name}: cannot read the results"))?;
        ensure!(text.len() as u64 <= BYTES_MAX, "{name}: results have {BYTES_MAX} bytes at the most");
        let mut results = Results::default();
        results.add(&text, &shown::path(path).to_string())?;
        ensure!(!results.0.is_empty(), "{}: the file has no results", shown::path(path));
        Ok(results)
    }

    /// Adds what a run has printed. A job that is there already gets more rounds.
    pub(super) fn add(&mut self, text: &str, from: &str) -> anyhow::Result<()> {
        for (number, line) in text.lines().enumerate() {
            let result = read(line).with_context(|| {
                format!("{from}: line {} is no result of percolator bench --json", number + 1)
            })?;
            match self.0.iter_mut().find(|one| one.job == result.job && one.setup == result.setup) {
                Some(one) => one.rounds.extend(result.rounds),
                None => self.0.push(result),
            }
        }
        Ok(())
    }

    pub(super) fn jobs(&self) -> &[JobResult] {
        &self.0
    }

    /// The same job: of the same name and setup, or of the same name if only one has it.
    pub(super) fn partner(&self, of: &JobResult) -> Option<&JobResult> {
        let mut alike = self.0.iter().filter(|result| result.job == of.job);
        let same = self.0.iter().find(|result| result.job == of.job && result.setup == of.setup);
        same.or_else(|| alike.next().filter(|_| alike.next().is_none()))
    }
}

fn read(line: &str) -> anyhow::Result<JobResult> {
    let figures: Value = serde_json::from_str(line)?;
    let Line { job, rounds, each_round } = Line::deserialize(&figures)?;
    let rounds = match each_round {
        Some(each_round) => {
            ensure!(!each_round.is_empty(), "its each_round is empty");
            each_round
        }
        None => {
            ensure!(
                rounds == 1,
                "an older percolator wrote it, and left out what each of its {rounds} rounds gave: compare \
                 the two programs instead of their results"
            );
            let only = OnlyRound::deserialize(&figures)?;
            vec![RoundFigures {
                records_per_s: only.records_per_s.median,
                cpu_s_per_1000: only.cpu_s_per_1000,
                first_batch_ms: only.first_batch_ms,
                limits: BTreeMap::new(),
                share_of: only.share_of,
            }]
        }
    };
    let setup = SETUP.into_iter().filter_map(|name| Some((name, said(figures.get(name)?))));
    Ok(JobResult { job, setup: setup.collect(), rounds })
}

fn said(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(said).collect::<Vec<_>>().join(", "),
        Value::Null => "not known".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn round(records_per_s: f64) -> Value {
        json!({
            "records_per_s": records_per_s, "cpu_s_per_1000": 0.5, "first_batch_ms": 3.0,
            "limits": { "store_n": 2e9 }, "share_of": { "store_n": 0.25 },
        })
    }

    fn line(job: &str, rounds: &[f64]) -> Value {
        let each_round: Vec<_> = rounds.iter().copied().map(round).collect();
        json!({ "job": job, "rounds": rounds.len(), "threads": 2, "devices": ["host:0", "host:1"],
            "source_records": null, "each_round": each_round })
    }

    #[test]
    fn a_job_that_comes_twice_has_the_rounds_of_both() {
        let mut results = Results::default();
        let other = line("b", &[4.0]);
        results.add(&format!("{}\n{other}\n", line("a", &[1.0, 2.0])), "old").unwrap();
        results.add(&line("a", &[3.0]).to_string(), "old").unwrap();
        let job = |name| results.jobs().iter().find(|result| result.job == name).unwrap();
        let rates = |name| {
            let rounds = &job(name).rounds;
            rounds.iter().map(|round| round.records_per_s).collect::<Vec<_>>()
        };
        assert_eq!((rates("a"), rates("b"), results.jobs().len()), (vec![1.0, 2.0, 3.0], vec![4.0], 2));
        let setup = &job("a").setup;
        let found: Vec<_> = setup.iter().map(|(name, value)| (*name, &**value)).collect();
        assert_eq!(found, [("devices", "host:0, host:1"), ("source_records", "not known"), ("threads", "2")]);
    }

    #[test]
    fn a_job_goes_with_the_one_of_its_setup() {
        let results = |threads: &[u32]| {
            let mut results = Results::default();
            for threads in threads {
                let mut line = line("a", &[1.0]);
                line["threads"] = json!(threads);
                results.add(&line.to_string(), "old").unwrap();
            }
            results
        };
        let (swept, one, other) = (results(&[1, 2, 4]), results(&[4]), results(&[8]));
        assert_eq!(swept.partner(&one.jobs()[0]).unwrap().setup["threads"], "4");
        assert_eq!(swept.partner(&other.jobs()[0]), None, "three have its name");
        assert!(one.partner(&other.jobs()[0]).is_some(), "only one has its name");
    }

    #[test]
    fn results_without_their_rounds_are_of_use_if_there_was_one() {
        let mut old = line("a", &[]);
        old.as_object_mut().unwrap().remove("each_round");
        let figures = old.as_object_mut().unwrap();
        figures.extend(round(7.0).as_object().unwrap().clone());
        figures.insert("records_per_s".to_owned(), json!({ "min": 7.0, "median": 7.0, "max": 7.0 }));
        figures.insert("rounds".to_owned(), json!(1));
        assert_eq!(read(&old.to_string()).unwrap().rounds[0].records_per_s, 7.0);
        old["rounds"] = json!(3);
        let error = read(&old.to_string()).unwrap_err().to_string();
        assert!(error.contains("each of its 3 rounds"), "{error}");
    }

    #[test]
    fn what_is_no_result_is_named_by_its_line() {
        let mut results = Results::default();
        for (text, said) in [("{}", "line 1"), ("[1]", "line 1"), ("\n", "line 1"), ("no", "line 1")] {
            let error = results.add(text, "old.json").unwrap_err().to_string();
            assert!(error.starts_with("old.json: ") && error.contains(said), "{error}");
        }
        let text = format!("{}\nrest", line("a", &[1.0]));
        let error = results.add(&text, "old.json").unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
