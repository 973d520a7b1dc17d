//! One value per replica.

use std::sync::Arc;

/// A value for each replica of this process, in the order of the replicas: TensorFlow's `PerReplica`. Other
/// processes hold the values of their own replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerReplica<T> {
    /// As many as `values`, ascending.
    replicas: Arc<[usize]>,
    values: Vec<T>,
}

impl<T> PerReplica<T> {
    /// # Panics
    ///
    /// If the numbers of values and replicas differ: a bug of the caller.
    pub(super) fn new(replicas: &Arc<[usize]>, values: Vec<T>) -> Self {
        assert_eq!(replicas.len(), values.len(), "each replica of this process has one value");
        PerReplica { replicas: replicas.clone(), values }
    }

    /// The values of this process's replicas: TensorFlow's `experimental_local_results`.
    #[must_use]
    pub fn local(&self) -> &[T] {
        &self.values
    }

    /// The replicas of the job that the values are of.
    #[must_use]
    pub fn replicas(&self) -> &[usize] {
        &self.replicas
    }

    /// The value of a replica of the job, if the replica is in this process.
    #[must_use]
    pub fn get(&self, replica: usize) -> Option<&T> {
        let place = self.replicas.binary_search(&replica).ok()?;
        self.values.get(place)
    }

    /// The values.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.values.iter()
    }

    /// Maps each value, replica by replica.
    pub fn map<U>(self, each: impl FnMut(T) -> U) -> PerReplica<U> {
        PerReplica { replicas: self.replicas, values: self.values.into_iter().map(each).collect() }
    }

    /// Maps each value, or returns the first error.
    ///
    /// # Errors
    ///
    /// The first error of `each`, which is not called for later values.
    pub fn try_map<U, E>(self, each: impl FnMut(T) -> Result<U, E>) -> Result<PerReplica<U>, E> {
        let values = self.values.into_iter().map(each).collect::<Result<_, E>>()?;
        Ok(PerReplica { replicas: self.replicas, values })
    }
}

impl<T> IntoIterator for PerReplica<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.values.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a PerReplica<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// A value that a replica can bring to a [reduction](crate::StepWeights::reduce): some numbers on
/// the host. They are added up as `f64`, in the order of the replicas of each process, and then of the
/// processes. So another number of processes may round differently.
pub trait HostValue: Sized {
    /// Returns its numbers.
    fn numbers(&self) -> Vec<f64>;

    /// Makes a value of such numbers.
    fn from_numbers(numbers: Vec<f64>) -> Self;
}

impl HostValue for f64 {
    fn numbers(&self) -> Vec<f64> {
        vec![*self]
    }

    fn from_numbers(numbers: Vec<f64>) -> Self {
        numbers.first().copied().unwrap_or_default()
    }
}

impl HostValue for f32 {
    fn numbers(&self) -> Vec<f64> {
        vec![f64::from(*self)]
    }

    fn from_numbers(numbers: Vec<f64>) -> Self {
        rounded(f64::from_numbers(numbers))
    }
}

impl HostValue for Vec<f64> {
    fn numbers(&self) -> Vec<f64> {
        self.clone()
    }

    fn from_numbers(numbers: Vec<f64>) -> Self {
        numbers
    }
}

impl HostValue for Vec<f32> {
    fn numbers(&self) -> Vec<f64> {
        self.iter().copied().map(f64::from).collect()
    }

    fn from_numbers(numbers: Vec<f64>) -> Self {
        numbers.into_iter().map(rounded).collect()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "rounded, to the nearest f32")]
fn rounded(number: f64) -> f32 {
    number as f32
}
