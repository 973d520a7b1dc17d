//! The parts of a record as members of a sample: their extensions, which say how WebDataset decodes them, and
//! their bytes.

use serde_json::Value as Json;

use super::npy;
use crate::fields::has_twice;
use crate::{Array, Part, Value};

/// The extensions by which WebDataset knows how to decode a member, and those of files.
const KNOWN: &[&str] = &[
    "jpg",
    "jpeg",
    "png",
    "webp",
    "bmp",
    "ppm",
    "pgm",
    "pbm",
    "pnm",
    "tif",
    "tiff",
    "gif",
    "cls",
    "cls2",
    "class",
    "count",
    "index",
    "inx",
    "id",
    "txt",
    "text",
    "transcript",
    "json",
    "jsn",
    "npy",
    "npz",
    "pth",
    "pyd",
    "pickle",
    "ten",
    "tb",
    "mp",
    "msg",
    "bin",
    "mp4",
    "avi",
    "mov",
    "mkv",
    "flac",
    "mp3",
    "wav",
    "sox",
    "ogg",
    "cbor",
];

/// The names of parts that are the image, or its label, whose members have no name but the extension.
const IMAGES: &[&str] = &["image", "img", "image/encoded", "data"];
const LABELS: &[&str] = &["label", "labels", "class", "cls", "image/class/label", "target"];
const TEXTS: &[&str] = &["text"];

/// The extensions whose members WebDataset decodes as integers.
const INTEGERS: &[&str] = &["cls", "cls2", "class", "count", "index", "inx", "id"];

/// Adds the members of a part: extension and bytes.
///
/// # Errors
///
/// What a member cannot hold.
pub(super) fn members_of(name: &str, value: &Value<'_>, into: &mut Members) -> Result<(), String> {
    match value {
        Value::Null => {
            into.reserve(name);
            Ok(())
        }
        Value::Struct(members) if members.iter().any(|(_, value)| matches!(value, Value::Bytes(_))) => {
            members.iter().try_for_each(|(member, value)| match &**member {
                "bytes" => members_of(name, value, into),
                member => members_of(&format!("{name}.{member}"), value, into),
            })
        }
        Value::Bytes(bytes) => {
            let found = extension_of(bytes).unwrap_or("bin");
            let extension = into.extension(name, found, IMAGES, |_| true);
            into.add(extension, bytes.to_vec());
            Ok(())
        }
        Value::Text(text) => {
            let extension = into.extension(name, "txt", TEXTS, |known| match known {
                "txt" | "text" | "transcript" => true,
                "json" | "jsn" => serde_json::from_str::<Json>(text).is_ok(),
                known => INTEGERS.contains(&known) && text.parse::<i64>().is_ok(),
            });
            into.add(extension, text.as_bytes().to_vec());
            Ok(())
        }
        Value::Int(_) | Value::UInt(_) | Value::Bool(_) => {
            let text = match value {
                Value::Int(number) => number.to_string(),
                Value::UInt(number) => number.to_string(),
                other => u8::from(*other == Value::Bool(true)).to_string(),
            };
            let extension = into.extension(name, "cls", LABELS, |known| INTEGERS.contains(&known));
            into.add(extension, text.into_bytes());
            Ok(())
        }
        Value::Array(array) => {
            let bytes = npy::file_of(array).ok_or_else(|| {
                format!("the part {name:?} has the type {}, which no file of NumPy has", array.dtype.numpy())
            })?;
            let extension = into.extension(name, "npy", &[], |known| known == "npy");
            into.add(extension, bytes);
            Ok(())
        }
        Value::Float(_) | Value::Number(_) | Value::Listed(_) | Value::List(_) | Value::Struct(_) => {
            let json =
                json_of(value).map_err(|what| format!("the part {name:?} has {what}, which JSON has not"))?;
            let extension = into.extension(name, "json", &[], |known| ["json", "jsn"].contains(&known));
            into.add(extension, json.to_string().into_bytes());
            Ok(())
        }
    }
}

/// The extension of an image's file.
fn extension_of(bytes: &[u8]) -> Option<&'static str> {
    Some(match bytes {
        [0xff, 0xd8, 0xff, ..] => "jpg",
        [0x89, b'P', b'N', b'G', ..] => "png",
        [b'G', b'I', b'F', b'8', ..] => "gif",
        [b'P', b'5', white, ..] if white.is_ascii_whitespace() => "pgm",
        [b'P', b'6', white, ..] if white.is_ascii_whitespace() => "ppm",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "webp",
        _ if bytes.starts_with(b"\x93NUMPY") => "npy",
        _ => return None,
    })
}

/// A value as JSON, of which nothing is lost.
fn json_of(value: &Value<'_>) -> Result<Json, &'static str> {
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(truth) => Json::from(*truth),
        Value::Int(number) => Json::from(*number),
        Value::UInt(number) => Json::from(*number),
        Value::Float(number) => {
            serde_json::Number::from_f64(*number).map(Json::Number).ok_or("a float without end")?
        }
        Value::Number(text) | Value::Text(text) => Json::from(text.as_ref()),
        Value::Bytes(_) => return Err("bytes in a list"),
        Value::Array(_) => return Err("an array among its values"),
        Value::Listed(array) => Json::Array(numbers_of(array)?),
        Value::List(values) => Json::Array(values.iter().map(json_of).collect::<Result<_, _>>()?),
        Value::Struct(members) => {
            if has_twice(members.iter().map(|(name, _)| &**name)) {
                return Err("two members of one name");
            }
            let members =
                members.iter().map(|(name, value)| Ok((name.clone().into_owned(), json_of(value)?)));
            Json::Object(members.collect::<Result<_, &'static str>>()?)
        }
    })
}

/// Integers and truth values of a list.
fn numbers_of(array: &Array<'_>) -> Result<Vec<Json>, &'static str> {
    use crate::ElementType as E;

    macro_rules! of {
        ($number:ty) => {
            array
                .bytes
                .as_chunks::<{ size_of::<$number>() }>()
                .0
                .iter()
                .map(|it| Json::from(<$number>::from_le_bytes(*it)))
        };
    }
    Ok(match array.dtype {
        E::Bool => array.bytes.iter().map(|byte| Json::from(*byte != 0)).collect(),
        E::I8 => of!(i8).collect(),
        E::I16 => of!(i16).collect(),
        E::I32 => of!(i32).collect(),
        E::I64 => of!(i64).collect(),
        E::U8 => of!(u8).collect(),
        E::U16 => of!(u16).collect(),
        E::U32 => of!(u32).collect(),
        E::U64 => of!(u64).collect(),
        _ => return Err("floats of a list"),
    })
}

/// The members of one sample, whose extensions differ.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// Extensions and bytes.
    pub(super) found: Vec<(String, Vec<u8>)>,
    /// The names of parts that are null: whether one is there must not decide how another is called.
    reserved: Vec<String>,
    /// The lists of names of which one has its member without a name.
    plain: Vec<&'static [&'static str]>,
}

impl Members {
    /// Those of a record.
    pub(super) fn of(parts: &[Part<'_>]) -> Result<Self, String> {
        let mut members = Members::default();
        parts.iter().try_for_each(|(name, value)| members_of(name, value, &mut members))?;
        Ok(members)
    }

    /// The extension of a part: its name if that ends in one that `suits` the value, or `found` behind the
    /// name, or alone if the part is the first of those that need no name.
    fn extension(
        &mut self,
        name: &str,
        found: &str,
        plain: &'static [&'static str],
        suits: impl Fn(&str) -> bool,
    ) -> String {
        let last = name.rsplit('.').next().unwrap_or(name);
        let of_name = name.replace('/', "_");
        let wanted = if KNOWN.contains(&last) && suits(last) {
            of_name.clone()
        } else if plain.contains(&name) && !self.plain.contains(&plain) {
            self.plain.push(plain);
            found.to_owned()
        } else {
            format!("{of_name}.{found}")
        };
        if !self.has(&wanted) {
            return wanted;
        }
        let numbered = (2..).map(|number| format!("{of_name}_{number}.{found}"));
        numbered.into_iter().find(|free| !self.has(free)).unwrap_or_default()
    }

    fn reserve(&mut self, name: &str) {
        self.reserved.push(name.replace('/', "_").to_lowercase());
        self.plain.extend([IMAGES, LABELS, TEXTS].into_iter().filter(|plain| plain.contains(&name)));
    }

    /// Whether a member has the extension, or a part that is null may have it in another record. WebDataset
    /// does not tell upper and lower case apart.
    fn has(&self, extension: &str) -> bool {
        let extension = extension.to_lowercase();
        let is_reserved = |name: &String| {
            extension.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.found.iter().any(|(taken, _)| taken.to_lowercase() == extension)
            || self.reserved.iter().any(is_reserved)
    }

    fn add(&mut self, extension: String, bytes: Vec<u8>) {
        self.found.push((extension, bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ElementType, Shape};

    fn names(parts: &[Part<'_>]) -> Vec<(String, String)> {
        let members = Members::of(parts).unwrap().found;
        members
            .into_iter()
            .map(|(name, bytes)| (name, String::from_utf8_lossy(&bytes).into_owned()))
            .collect()
    }

    #[test]
    fn extensions_say_what_a_part_is() {
        let jpeg: &[u8] = b"\xff\xd8\xff\xe0";
        let picture = Value::Struct(vec![
            ("bytes".into(), Value::Bytes(jpeg.into())),
            ("path".into(), Value::Text("a.jpg".into())),
        ]);
        let parts = [
            ("image".into(), picture),
            ("mask/encoded".into(), Value::Bytes(b"\x89PNG".as_slice().into())),
            ("label".into(), Value::Int(-3)),
            ("is_cat".into(), Value::Bool(true)),
            ("text".into(), Value::Text("hi".into())),
            ("words".into(), Value::List(vec![Value::Text("a".into()), Value::Null])),
            ("meta.json".into(), Value::Bytes(b"{}".as_slice().into())),
            ("nothing".into(), Value::Null),
        ];
        let due = [
            ("jpg", String::from_utf8_lossy(jpeg)),
            ("image.path.txt", "a.jpg".into()),
            ("mask_encoded.png", String::from_utf8_lossy(b"\x89PNG")),
            ("cls", "-3".into()),
            ("is_cat.cls", "1".into()),
            ("text", "hi".into()),
            ("words.json", "[\"a\",null]".into()),
            ("meta.json", "{}".into()),
        ];
        assert_eq!(names(&parts), due.map(|(name, text)| (name.to_owned(), text.into_owned())));
    }

    #[test]
    fn two_parts_never_have_one_member() {
        let int = |name: &'static str| (name.into(), Value::Int(1));
        let found: Vec<_> = names(&[int("label"), int("class"), int("CLS"), int("labels")]);
        let found: Vec<_> = found.into_iter().map(|(name, _)| name).collect();
        assert_eq!(found, ["cls", "class", "CLS.cls", "labels.cls"]);
        let text = |name: &'static str, text: &'static str| (name.into(), Value::Text(text.into()));
        let found = names(&[text("id", "abc-12"), text("cls", "3"), text("json", "{"), text("npy", "x")]);
        let found: Vec<_> = found.into_iter().map(|(name, _)| name).collect();
        assert_eq!(found, ["id.txt", "cls", "json.txt", "npy.txt"], "as WebDataset can decode them");
    }

    #[test]
    fn what_is_null_changes_no_name() {
        let names_of = |label: Value<'static>| {
            let parts = [("label".into(), label), ("labels".into(), Value::Int(2))];
            let slashed = [("a/b".into(), Value::Null), ("a_b".into(), Value::Int(3))];
            names(&[&parts[..], &slashed[..]].concat()).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names_of(Value::Int(1)), ["cls", "labels.cls", "a_b_2.cls"]);
        assert_eq!(names_of(Value::Null), ["labels.cls", "a_b_2.cls"]);
    }

    #[test]
    fn what_a_member_cannot_hold_is_named() {
        let bytes = Value::List(vec![Value::Bytes(b"x".as_slice().into())]);
        let error = Members::of(&[("faces".into(), bytes)]).unwrap_err();
        assert!(error.contains("\"faces\" has bytes in a list"), "{error}");
        let bf16 = Array { dtype: ElementType::Bf16, shape: Shape::new(), bytes: vec![0, 0].into() };
        let error = Members::of(&[("x".into(), Value::Array(bf16))]).unwrap_err();
        assert!(error.contains("bfloat16"), "{error}");
    }
}
