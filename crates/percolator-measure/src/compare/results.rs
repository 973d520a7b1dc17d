//! What `percolator bench --json` has printed, of one build.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::path::Path;

use percolator_files::{input_file, shown};
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::Value;

use super::error::ResultsError;
use super::figures::RoundFigures;

/// The results of several jobs.
///
/// ```
/// use percolator_measure::compare::{Comparison, Results, Verdict};
///
/// let line = |rate: f64| {
///     let figures = r#""cpu_s_per_1000": 0.1, "first_batch_ms": 3, "limits": {}, "share_of": {}"#;
///     let round = format!(r#"{{"records_per_s": {rate}, {figures}}}"#);
///     format!(r#"{{"job": "train", "rounds": 5, "each_round": [{}]}}"#, [&*round; 5].join(", "))
/// };
/// let (mut old, mut new) = (Results::default(), Results::default());
/// old.add(&line(1000.0), "old.json")?;
/// new.add(&line(2000.0), "new.json")?;
/// let job = &old.jobs()[0];
/// let other = new.partner(job).expect("it has the same job");
/// let compared = Comparison::of(["old", "new"], job, other).expect("both have rounds");
/// assert_eq!(compared.records_per_s.verdict, Verdict::Better);
/// # Ok::<(), percolator_measure::compare::ResultsError>(())
/// ```
#[derive(Debug, Default)]
pub struct Results {
    jobs: Vec<JobResult>,
    /// The numbers of the jobs of each name, by setup.
    numbers: BTreeMap<String, BTreeMap<Setup, usize>>,
}

type Setup = BTreeMap<String, String>;

/// A job's rounds, and what they were measured on.
#[derive(Clone, Debug, PartialEq)]
pub struct JobResult {
    /// The job's name.
    pub job: String,
    /// What must be alike in two results, or else they differ for that reason too.
    pub setup: Setup,
    /// What each round gave.
    pub rounds: Vec<RoundFigures>,
}

/// The keys of a line that are the setup.
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
    each_round: Vec<RoundFigures>,
}

impl Results {
    /// Reads a file that `percolator bench --json` has written: a line of JSON for each job.
    ///
    /// # Errors
    ///
    /// [`ResultsError`].
    pub fn load(path: &Path) -> Result<Self, ResultsError> {
        let read = input_file::read(path, BYTES_MAX).and_then(|bytes| {
            String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
        });
        let failed = |source| ResultsError::Io { path: path.to_owned(), source };
        let text = read.map_err(failed)?;
        let mut results = Results::default();
        results.add(&text, &shown::path(path).to_string())?;
        match results.jobs.is_empty() {
            true => Err(failed(io::Error::other("the file has no results"))),
            false => Ok(results),
        }
    }

    /// Adds what a run has printed. A job that is there already gets more rounds. `from` is for errors.
    ///
    /// # Errors
    ///
    /// [`ResultsError::Line`].
    pub fn add(&mut self, text: &str, from: &str) -> Result<(), ResultsError> {
        for (number, line) in text.lines().enumerate() {
            let result = read(line).map_err(|source| ResultsError::Line {
                from: from.to_owned(),
                line: number + 1,
                source,
            })?;
            match self.numbers.entry(result.job.clone()).or_default().entry(result.setup.clone()) {
                Entry::Occupied(number) => self.jobs[*number.get()].rounds.extend(result.rounds),
                Entry::Vacant(vacant) => {
                    vacant.insert(self.jobs.len());
                    self.jobs.push(result);
                }
            }
        }
        Ok(())
    }

    /// The results, by job and setup.
    #[must_use]
    pub fn jobs(&self) -> &[JobResult] {
        &self.jobs
    }

    /// The same job: of the same name and setup, or of the same name if only one has it.
    #[must_use]
    pub fn partner(&self, of: &JobResult) -> Option<&JobResult> {
        let alike = self.numbers.get(&of.job)?;
        let only = || alike.values().next().filter(|_| alike.len() == 1);
        alike.get(&of.setup).or_else(only).map(|&number| &self.jobs[number])
    }
}

fn read(line: &str) -> Result<JobResult, serde_json::Error> {
    let figures: Value = serde_json::from_str(line)?;
    let Line { job, each_round: rounds } = Line::deserialize(&figures)?;
    if rounds.is_empty() {
        return Err(serde_json::Error::custom("its each_round is empty"));
    }
    let setup = SETUP.into_iter().filter_map(|name| Some((name.to_owned(), said(figures.get(name)?))));
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
        let found: Vec<_> = setup.iter().map(|(name, value)| (&**name, &**value)).collect();
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
