//! Which of candle's types an array's elements have.

use candle_core::DType;
use percolator::Dtype;

use crate::error::CandleError;

/// The type of a tensor whose bytes are those of an array. candle has no booleans: its own comparisons give
/// bytes of 0 and 1, which is what an array of booleans holds.
pub(crate) fn of(array: &str, dtype: Dtype) -> Result<DType, CandleError> {
    let instead = match dtype {
        Dtype::U8 | Dtype::Bool => return Ok(DType::U8),
        Dtype::U32 => return Ok(DType::U32),
        Dtype::I16 => return Ok(DType::I16),
        Dtype::I32 => return Ok(DType::I32),
        Dtype::I64 => return Ok(DType::I64),
        Dtype::F16 => return Ok(DType::F16),
        Dtype::Bf16 => return Ok(DType::BF16),
        Dtype::F32 => return Ok(DType::F32),
        Dtype::F64 => return Ok(DType::F64),
        Dtype::I8 => "i16",
        Dtype::U16 => "u32",
        _ => "i64",
    };
    Err(CandleError::Dtype { field: array.to_owned(), found: dtype, instead })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_has_the_size_of_its_elements_or_is_refused_with_advice() {
        let kept = [
            (Dtype::U8, DType::U8),
            (Dtype::Bool, DType::U8),
            (Dtype::U32, DType::U32),
            (Dtype::I16, DType::I16),
            (Dtype::I32, DType::I32),
            (Dtype::I64, DType::I64),
            (Dtype::F16, DType::F16),
            (Dtype::Bf16, DType::BF16),
            (Dtype::F32, DType::F32),
            (Dtype::F64, DType::F64),
        ];
        for (ours, theirs) in kept {
            assert_eq!(of("data", ours).expect("candle has it"), theirs);
            assert_eq!(ours.size(), theirs.size_in_bytes());
        }
        for (ours, instead) in [(Dtype::I8, "i16"), (Dtype::U16, "u32"), (Dtype::U64, "i64")] {
            let error = of("data", ours).expect_err("candle does not have it").to_string();
            assert!(error.contains("data") && error.contains(&ours.to_string()), "{error}");
            assert!(error.contains(instead), "{error}");
        }
    }
}
