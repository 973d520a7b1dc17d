//! What a file or value is when it is not what was wanted, and what a record's value is: determined in one
//! place for all readers, with advice in the caller's terms. Shared with the other packages; not part of the
//! interface.

mod pixels;
mod value;

pub use percolator_files::what::{Kind, Thing, instead_of};
pub use pixels::PixelOrder;
pub use value::{Value, value};

#[cfg(test)]
mod tests;
