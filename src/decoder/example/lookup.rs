//! Where the requested features are in a record.

use percolator_messages::example::{Entries, ExampleError, Feature};

/// The names of the requested features, each once. A feature is identified by its number in this list.
#[derive(Clone, Debug, Default)]
pub(super) struct Lookup {
    names: Vec<Box<str>>,
}

/// The number of entries whose order is remembered from one record to the next.
const REMEMBERED: usize = 256;

/// The entry is of a feature that is not requested.
const OTHER: u8 = u8::MAX;

/// Where the features of a record are. Kept from record to record, as scratch memory.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The entry of each requested feature: start and end.
    places: Vec<Option<(usize, usize)>>,
    /// The features of an earlier record's entries, in their order. Most writers keep to one order, so most
    /// names need one comparison. It is only a guess.
    order: Vec<u8>,
}

impl Lookup {
    /// Requests the feature of this name, and returns its number.
    pub(super) fn number(&mut self, name: &str) -> usize {
        self.position(name.as_bytes()).unwrap_or_else(|| {
            self.names.push(name.into());
            self.names.len() - 1
        })
    }

    pub(super) fn name(&self, number: usize) -> &str {
        self.names.get(number).map_or("", |name| name)
    }

    fn position(&self, name: &[u8]) -> Option<usize> {
        self.names.iter().position(|known| known.as_bytes() == name)
    }

    pub(super) fn scratch(&self) -> Found {
        Found { places: vec![None; self.names.len()], order: Vec::with_capacity(REMEMBERED) }
    }

    /// Finds the features in a record. Of several with the same name, the last one wins.
    #[inline]
    pub(super) fn find(&self, record: &[u8], found: &mut Found) -> Result<(), ExampleError> {
        let Found { places, order } = found;
        places.fill(None);
        let mut entries = Entries::of_example(record);
        let mut at = 0;
        while let Some((name, place)) = entries.advance()? {
            let guess = order.get(at).map(|&guess| usize::from(guess));
            let is_right =
                |&guess: &usize| self.names.get(guess).is_some_and(|known| known.as_bytes() == name);
            let number = match guess.filter(is_right) {
                Some(number) => Some(number),
                None => self.learn(name, at, order),
            };
            if let Some(known) = number.and_then(|number| places.get_mut(number)) {
                *known = Some(place);
            }
            at += 1;
        }
        Ok(())
    }

    /// The number of the feature of this name, if it is requested. Remembers that it came at this place.
    #[cold]
    fn learn(&self, name: &[u8], at: usize, order: &mut Vec<u8>) -> Option<usize> {
        let number = self.position(name);
        let guess = number.and_then(|number| u8::try_from(number).ok()).unwrap_or(OTHER);
        if let Some(known) = order.get_mut(at) {
            *known = guess;
        } else if at == order.len() && at < REMEMBERED {
            order.push(guess);
        }
        number
    }
}

impl Found {
    /// The feature of this number; `None` if the record does not have it.
    #[inline]
    pub(super) fn feature<'a>(
        &self,
        record: &'a [u8],
        number: usize,
    ) -> Result<Option<Feature<'a>>, ExampleError> {
        let Some(&Some(place)) = self.places.get(number) else { return Ok(None) };
        Ok(Some(Entries::feature(record, place)?))
    }
}
