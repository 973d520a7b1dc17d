use std::path::Path;

use proptest::prelude::*;

use super::*;

fn part() -> Part<'static> {
    Part { path: Path::new("x.npy"), tensor: Some("x"), offset: 0 }
}

/// The index of the element with this number in row-major order.
fn index(mut number: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (place, extent) in index.iter_mut().zip(shape).rev() {
        *place = number % extent;
        number /= extent;
    }
    index
}

/// The slow version of `row_major`.
fn naive(data: &[u8], shape: &[usize], size: usize) -> Vec<u8> {
    let elements = data.len() / size;
    let from = |number: usize| {
        let index = index(number, shape);
        (0..shape.len()).map(|axis| index[axis] * shape[..axis].iter().product::<usize>()).sum::<usize>()
    };
    (0..elements).flat_map(|number| data[from(number) * size..][..size].to_vec()).collect()
}

fn fill(count: usize) -> Vec<u8> {
    (0..=250).cycle().step_by(7).take(count).collect()
}

#[test]
fn strings_that_need_too_much_memory_are_refused() {
    let of = |count: usize| {
        let (is_fortran, shape) = (false, vec![count]);
        Header { stored: Stored::Bytes(1), is_fortran, shape, data_bytes: count }
    };
    let check = |count: usize, byte: u8| of(count).check_strings(&vec![byte; count], part());
    // One that is not empty has memory of its own, of 32 bytes at least.
    for (byte, most, found) in [
        (0, 42_949_672, "42949673 strings, which need 1073741825 bytes of memory"),
        (b'x', 18_837_575, "18837576 strings, which need 1073741832 bytes of memory"),
    ] {
        check(most, byte).unwrap();
        let error = check(most + 1, byte).unwrap_err().to_string();
        assert!(error.contains(found), "{error}");
    }
    let numbers = Stored::Numbers { data_type: DataType::Uint8, is_big_endian: false };
    Header { stored: numbers, ..of(usize::MAX) }.check_strings(&[], part()).unwrap();
}

#[test]
fn strings_that_would_be_padded_beyond_what_is_read_are_refused() {
    let long = vec![b'x'; 1 << 20];
    let of = |count: usize| {
        let strings = (0..count).map(|place| if place == 0 { &*long } else { b"" });
        let tensor = Tensor::strings([count], strings).unwrap();
        Written::new("t", &tensor, Format::Npz).map(drop)
    };
    of(1023).unwrap();
    let error = of(1024).unwrap_err().to_string();
    assert!(
        error.contains("1024 strings, the longest of 1048576 bytes, would need 1073766432 bytes"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn fortrans_order_matches_naive(shape in prop::collection::vec(0_usize..5, 0..5), size in 1_usize..5) {
        let data = fill(shape.iter().product::<usize>() * size);
        prop_assert_eq!(row_major(&data, &shape, size).unwrap(), naive(&data, &shape, size));
    }
}

fn read(descr: &str, order: &str, shape: &str, data: &[u8]) -> Result<Tensor<'static>, ConvertError> {
    let text = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}");
    let bytes =
        [b"\x93NUMPY\x01\x00", &u16::try_from(text.len()).unwrap().to_le_bytes()[..], text.as_bytes()];
    Header::parse(&bytes.concat(), part())?.tensor(data.to_vec(), part())
}

#[test]
fn other_orders_are_converted() {
    let tensor = read("'>i2'", "True", "(2, 2)", &[0, 1, 0, 2, 0, 3, 0, 4]).unwrap();
    assert_eq!(*tensor.values::<i16>().unwrap(), [1, 3, 2, 4]);
    let tensor = read("'>c8'", "False", "(1,)", &[0x3f, 0x80, 0, 0, 0x40, 0, 0, 0]).unwrap();
    assert_eq!(*tensor.values::<[f32; 2]>().unwrap(), [[1.0, 2.0]]);
    let tensor =
        read("'>U2'", "True", "(2,)", &[0, 0, 0, 0xfc, 0, 0, 0, 0, 0, 1, 0xf6, 0, 0, 0, 0, 65]).unwrap();
    let strings = Elements::Strings(vec!["ü".as_bytes().into(), "😀A".as_bytes().into()]);
    assert_eq!(tensor.elements(), &strings);
}

#[test]
fn strings_lose_the_zeros_that_fill_their_places() {
    let tensor = read("'|S3'", "False", "(3,)", b"ab\0\0\0\0\0a\0").unwrap();
    assert_eq!(tensor, Tensor::strings([3], [&b"ab"[..], b"", b"\0a"]).unwrap());
    let tensor = read("'|S0'", "False", "(0, 7)", b"").unwrap();
    assert_eq!(tensor, Tensor::strings([0, 7], [b""; 0].map(|none: &[u8; 0]| &none[..])).unwrap());
    let error = read("'<U1'", "False", "(1,)", &[0, 0xd8, 0, 0]).unwrap_err().to_string();
    assert!(error.contains("tensor \"x\": byte 0: a number that is no character"), "{error}");
}

#[test]
fn what_numpy_would_change_is_refused() {
    let refused = |tensor: Tensor<'_>| Written::new("t", &tensor, Format::Npy).unwrap_err().to_string();
    let error = refused(Tensor::strings([2], [&b"a"[..], b"b\0"]).unwrap());
    assert!(
        error.contains("tensor \"t\" cannot be written as .npy: string 1 ends with a zero byte"),
        "{error}"
    );
    let error = refused(Tensor::new(DataType::Uint8, vec![1; 65], vec![0]).unwrap());
    assert!(error.contains("65 axes"), "{error}");
    let written = to_bytes(&Tensor::strings([2], [&b"a"[..], b"bc"]).unwrap());
    assert_eq!(&written[128..], b"a\0bc");
    assert!(read("'|u1'", "False", "(2,)", &[1]).is_err());
}
