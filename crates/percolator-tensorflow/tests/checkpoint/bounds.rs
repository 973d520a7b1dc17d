//! What a small file cannot claim: memory is bounded by the bytes that a checkpoint has.

use percolator_tensorflow::proto::{BundleEntryProto, TensorSliceProto};
use percolator_tensorflow::{CheckpointError, DataType, Elements};

use crate::forge::{Bundle, Layout, PLAIN, shape};
use crate::forged::{extent, open, refused, slice_key, stored_strings};

/// A variable of 40 strings in slices of 10, which have the same bytes or bytes of their own.
fn strings_in_slices(is_shared: bool) -> Bundle {
    let mut bundle = Bundle::new();
    let ranges: Vec<_> = (0..4).map(|slice| slice * 10..(slice + 1) * 10).collect();
    for range in &ranges {
        let key = slice_key("v", std::slice::from_ref(range));
        match bundle.entries.values().next().filter(|_| is_shared).cloned() {
            Some(entry) => drop(bundle.entries.insert(key, entry)),
            None => {
                let (bytes, crc32c) = stored_strings(&[&b""[..]; 10], false, false);
                bundle.add_summed(key, DataType::String, &[10], &bytes, crc32c);
            }
        }
    }
    let slice = |range| TensorSliceProto { extent: vec![extent(range)] };
    let entry = BundleEntryProto {
        dtype: DataType::String.to_proto(),
        shape: Some(shape(&[40])),
        slices: ranges.iter().map(slice).collect(),
        ..BundleEntryProto::default()
    };
    bundle.entries.insert(b"v".to_vec(), entry);
    bundle
}

#[test]
fn slices_of_strings_that_share_bytes_take_no_memory() {
    let (_folder, checkpoint) = open(&strings_in_slices(false));
    let Elements::Strings(strings) = checkpoint.tensor("v").unwrap().into_elements() else { panic!() };
    assert_eq!(strings.len(), 40);
    let (_folder, checkpoint) = open(&strings_in_slices(true));
    let error = checkpoint.tensor("v").unwrap_err();
    assert!(matches!(error, CheckpointError::Entry { .. }), "{error}");
    let found = "it takes at least 40 bytes, and its data files have 14 together";
    assert!(error.to_string().contains(found), "{error}");
}

#[test]
fn slices_that_take_more_than_an_index_can_have_are_refused() {
    // Each takes two bytes of the entry, or four, and next to none of the index.
    for extents in [0, 1] {
        let mut bundle = Bundle::new();
        bundle.add("v", DataType::Uint8, &[4], &[1; 4]);
        let slice = TensorSliceProto { extent: vec![Default::default(); extents] };
        bundle.entry("v").slices = vec![slice; 500_000];
        bundle.layout = Layout { is_snappy: true, ..PLAIN };
        let message = refused(&bundle).to_string();
        assert!(message.contains("the slices take more than 64 times the bytes of the index"), "{message}");
    }
}

#[test]
fn a_slice_of_more_axes_than_a_tensor_has_is_malformed() {
    let mut bundle = Bundle::new();
    bundle.add("v", DataType::Uint8, &[4], &[1; 4]);
    bundle.entry("v").slices = vec![TensorSliceProto { extent: vec![Default::default(); 255] }];
    let message = refused(&bundle).to_string();
    assert!(message.contains("it is malformed"), "{message}");
}
