//! Steps that are made into something else, as the packages for frameworks make tensors of them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use percolator::batch::FieldError;
use percolator::feed::{MadeBatches, MadeSteps, Maker, SelectiveMaker};
use percolator::{Batch, Feed, FeedError, Field};

use crate::lanes::{hosts, images, over};

/// Makes the positions of the records of each batch, and of the fields that are wanted their names.
struct Positions {
    wanted: Vec<String>,
    /// The fields of which nothing can be made.
    refused: &'static str,
    /// The record of which nothing can be made.
    bad: u64,
}

#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Feed(#[from] FeedError),
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error("not {0}")]
    Refused(String),
}

impl Positions {
    fn new() -> Self {
        Positions { wanted: Vec::new(), refused: "none", bad: u64::MAX }
    }
}

impl Maker for Positions {
    type Made = (Vec<u64>, Vec<String>);
    type Error = Fault;

    fn check(&self, fields: &[Field]) -> Result<(), Fault> {
        let refused = fields.iter().find(|field| field.name() == self.refused);
        refused.map_or(Ok(()), |field| Err(Fault::Refused(field.name().to_owned())))
    }

    fn make(&self, batch: Batch) -> Result<Self::Made, Fault> {
        let positions: Vec<u64> = batch.records().iter().map(|record| record.index).collect();
        match positions.contains(&self.bad) {
            true => Err(Fault::Refused(self.bad.to_string())),
            false => Ok((positions, self.wanted.clone())),
        }
    }
}

impl SelectiveMaker for Positions {
    fn only(&mut self, fields: Vec<String>) {
        self.wanted = fields;
    }
}

#[test]
fn what_is_made_comes_step_by_step_in_the_order_of_the_lanes() {
    let feed = || over(images("made", 6)).devices(hosts(2)).batch_size(2).epochs(1).build().unwrap();
    let positions = |batch: &Batch| batch.records().iter().map(|record| record.index).collect::<Vec<_>>();
    let due = |step: Vec<Batch>| -> Vec<_> {
        step.iter().map(|batch| (positions(batch), vec!["label".to_owned()])).collect()
    };
    let due: Vec<Vec<_>> = feed().steps().map(|step| due(step.unwrap())).collect();
    let mut feed = feed();
    let none_is_made = |_: &Feed| -> Result<Positions, Fault> { panic!("the lanes were not checked") };
    let error = MadeBatches::of(&mut feed, none_is_made).err().unwrap().to_string();
    assert!(error.contains("has 2 lanes, and the batches of one were asked for"), "{error}");
    let error = MadeSteps::of(&mut feed, 3, none_is_made).err().unwrap().to_string();
    assert!(error.contains("has 2 lane(s), but 3 device(s) were given"), "{error}");
    let refused = MadeSteps::of(&mut feed, 2, |_| Err::<Positions, _>(Fault::Refused("it".to_owned())));
    assert_eq!(refused.err().unwrap().to_string(), "not it");
    let steps = MadeSteps::of(&mut feed, 2, |_| Ok(Positions::new())).unwrap().only(["label"]).unwrap();
    let made: Vec<Vec<_>> = steps.map(Result::unwrap).collect();
    assert_eq!(made, due);
    assert_eq!(made.len(), 2);
}

#[test]
fn what_cannot_be_made_ends_the_steps() {
    let mut feed = over(images("made", 6)).batch_size(2).epochs(1).build().unwrap();
    let unknown =
        MadeBatches::of(&mut feed, |_| Ok(Positions::new())).unwrap().only(["labels"]).err().unwrap();
    assert!(unknown.to_string().starts_with("there is no field \"labels\""), "{unknown}");
    // Nothing is taken before the fields were checked.
    let mut refused =
        MadeBatches::of(&mut feed, |_| Ok(Positions { refused: "label", ..Positions::new() })).unwrap();
    assert_eq!(refused.next().unwrap().unwrap_err().to_string(), "not label");
    assert!(refused.next().is_none());
    let mut made = MadeBatches::of(&mut feed, |_| Ok(Positions { bad: 3, ..Positions::new() })).unwrap();
    assert_eq!(made.next().unwrap().unwrap().0, [0, 1]);
    assert_eq!(made.snapshot().unwrap().next(0).unwrap().step, 1);
    assert_eq!(made.next().unwrap().unwrap_err().to_string(), "not 3");
    assert!(made.next().is_none() && made.take_receipt().is_none());
    let _lanes = feed.take_lanes().unwrap();
    let mut steps = MadeBatches::of(&mut feed, |_| Ok(Positions::new())).unwrap();
    assert!(matches!(steps.next(), Some(Err(Fault::Feed(FeedError::LanesTaken)))));
    assert!(steps.next().is_none());
}
