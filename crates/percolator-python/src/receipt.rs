//! The classes `Receipt` and `Verdict`, and the function `verify`.

use std::error::Error;
use std::path::PathBuf;

use percolator::receipt::{self, DataDigest};
use pyo3::prelude::*;

use crate::errors;

/// What was delivered, written down: text.
#[pyclass(frozen, eq, module = "percolator")]
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Receipt {
    inner: receipt::Receipt,
}

impl Receipt {
    pub(crate) fn new(inner: receipt::Receipt) -> Self {
        Receipt { inner }
    }
}

#[pymethods]
impl Receipt {
    /// Reads the text of a receipt.
    #[new]
    fn parse(py: Python<'_>, text: &str) -> PyResult<Self> {
        let parsed = text.parse::<receipt::Receipt>();
        parsed.map(Receipt::new).map_err(|error| errors::no_receipt(py, &format!("no receipt: {error}")))
    }

    /// Reads a file that `save` wrote.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let loaded = py.detach(|| receipt::Receipt::load(path));
        loaded.map(Receipt::new).map_err(|error| errors::receipt(py, &error))
    }

    /// Writes a file that is whole or absent.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.inner.save(path)).map_err(|error| errors::receipt(py, &error))
    }

    /// This receipt and another of the same plan.
    fn merge(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        let mut merged = self.inner.clone();
        merged.merge(&other.inner).map_err(|error| errors::receipt(py, &error))?;
        Ok(Receipt::new(merged))
    }

    /// The number of records delivered in each epoch.
    #[getter]
    fn delivered(&self) -> Vec<(u64, u64)> {
        self.inner.epochs().map(|account| (account.epoch(), account.digest().records())).collect()
    }

    fn __str__(&self) -> String {
        self.inner.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Receipt({} of {:?})", self.delivered().len(), self.inner.source())
    }

    fn __getnewargs__(&self) -> (String,) {
        (self.inner.to_string(),)
    }
}

/// What receipts prove.
#[pyclass(frozen, module = "percolator")]
pub(crate) struct Verdict {
    inner: percolator_proof::Verdict,
}

#[pymethods]
impl Verdict {
    /// Whether each epoch has every record exactly once, or is still under way.
    #[getter]
    fn is_sound(&self) -> bool {
        self.inner.is_sound()
    }

    /// The first of these epochs that was not covered.
    fn first_not_covered(&self, epochs: u64) -> Option<u64> {
        self.inner.first_not_covered(epochs)
    }

    fn __bool__(&self) -> bool {
        self.inner.is_sound()
    }

    /// One line for each epoch and for each thing that is missing.
    fn __str__(&self) -> String {
        let mut lines: Vec<String> = self.inner.epochs.iter().map(ToString::to_string).collect();
        lines.extend(self.inner.absent_replicas.iter().map(ToString::to_string));
        let absent = self.inner.absent_epochs.iter();
        lines.extend(absent.map(|epochs| format!("epochs {}..{}: in no receipt", epochs.start, epochs.end)));
        lines.join("\n")
    }

    fn __repr__(&self) -> String {
        format!("Verdict(is_sound={})", if self.inner.is_sound() { "True" } else { "False" })
    }
}

/// Verifies the receipts of a run, and, with the file of a digest of the data set, the bytes.
#[pyfunction]
#[pyo3(signature = (receipts, *, digest=None))]
pub(crate) fn verify(
    py: Python<'_>,
    receipts: Vec<PyRef<'_, Receipt>>,
    digest: Option<PathBuf>,
) -> PyResult<Verdict> {
    let named: Vec<(String, receipt::Receipt)> = receipts
        .iter()
        .enumerate()
        .map(|(number, receipt)| (format!("receipt {number}"), receipt.inner.clone()))
        .collect();
    let verified = py.detach(move || -> Result<percolator_proof::Verdict, Box<dyn Error + Send + Sync>> {
        let receipts = named.iter().map(|(name, receipt)| (&**name, receipt));
        match digest {
            None => Ok(percolator_proof::Verdict::of(receipts)?),
            Some(path) => {
                let digest = DataDigest::load(path)?;
                Ok(percolator_proof::Verdict::with_digest(("the digest", &digest), receipts)?)
            }
        }
    });
    verified.map(|inner| Verdict { inner }).map_err(|error| errors::receipt(py, &*error))
}
