//! Fields as text: what [`ExampleFields`] documents, read and written.

use std::fmt;
use std::str::FromStr;

use super::fields::{BYTES_MAX, Elements, ExampleField, ExampleFields, Missing};
use crate::base::shape::{AXES_MAX, Dtype};
use crate::batch::field::{FIELDS_MAX, Field, FieldKind, Pad};
use percolator_files::shown;

/// The types, as they are written.
const DTYPES: [Dtype; 12] = [
    Dtype::I8,
    Dtype::I16,
    Dtype::I32,
    Dtype::I64,
    Dtype::U8,
    Dtype::U16,
    Dtype::U32,
    Dtype::U64,
    Dtype::F16,
    Dtype::Bf16,
    Dtype::F32,
    Dtype::F64,
];

/// Why a text does not describe fields.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the fields cannot be read at character {at}, {}: {problem}", found(rest))]
pub struct GrammarError {
    /// The number of the first wrong character, from 1.
    pub at: usize,
    /// The text from there on.
    pub rest: String,
    /// What is wrong.
    pub problem: String,
}

fn found(rest: &str) -> String {
    match rest {
        "" => "the end".to_owned(),
        rest => format!("{:?}", shown::front(rest)),
    }
}

impl FromStr for ExampleFields {
    type Err = GrammarError;

    fn from_str(text: &str) -> Result<Self, GrammarError> {
        let mut reader = Reader { text, at: 0 };
        let mut fields = Vec::new();
        loop {
            if fields.len() == FIELDS_MAX {
                return Err(
                    reader.wrong(format!("there are {FIELDS_MAX} fields already, the most that a batch has"))
                );
            }
            fields.push(reader.field()?);
            reader.skip_space();
            if reader.is_at_end() {
                return Ok(ExampleFields { fields });
            }
            reader.expect(',', "a comma and the next field, or the end")?;
        }
    }
}

/// Reads a text from its front.
struct Reader<'a> {
    text: &'a str,
    /// How many bytes were read; always a character boundary.
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn is_at_end(&self) -> bool {
        self.rest().is_empty()
    }

    #[cold]
    fn wrong(&self, problem: impl Into<String>) -> GrammarError {
        let read = self.text.get(..self.at).unwrap_or_default();
        GrammarError { at: read.chars().count() + 1, rest: self.rest().to_owned(), problem: problem.into() }
    }

    /// Like `wrong`, for the text read since `start`.
    #[cold]
    fn wrong_since(&self, start: usize, problem: impl Into<String>) -> GrammarError {
        Reader { text: self.text, at: start }.wrong(problem)
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// Skips this character, if it comes next.
    fn take(&mut self, wanted: char) -> bool {
        self.skip_space();
        let is_next = self.rest().starts_with(wanted);
        if is_next {
            self.at += wanted.len_utf8();
        }
        is_next
    }

    fn expect(&mut self, wanted: char, named: &str) -> Result<(), GrammarError> {
        if self.take(wanted) { Ok(()) } else { Err(self.wrong(format!("{named} should follow"))) }
    }

    /// The letters, digits and signs of names that come next.
    fn word(&mut self) -> &'a str {
        self.skip_space();
        let rest = self.rest();
        let end = rest.find(|c: char| !is_of_word(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn field(&mut self) -> Result<ExampleField, GrammarError> {
        self.skip_space();
        let start = self.at;
        let quoted = if self.rest().starts_with('"') { Some(self.feature_name()?) } else { None };
        let is_quoted = quoted.is_some();
        let feature = match quoted {
            Some(name) => name,
            None => self.word().to_owned(),
        };
        if feature.is_empty() && !is_quoted {
            return Err(self.wrong("a field should follow, such as input:i64[128]"));
        }
        let before = self.at;
        let name = if self.word() == "as" {
            self.word().to_owned()
        } else if is_quoted {
            return Err(self.wrong_since(before, "as NAME should follow, with the field's name"));
        } else {
            self.at = before;
            feature.clone()
        };
        if name.is_empty() || name.split('/').any(str::is_empty) {
            return Err(self.wrong_since(start, "not a field's name: use letters, digits, _, - and /"));
        }
        self.expect(':', "a colon and the field's type, such as :i64[128],")?;
        Ok(self.typed(name)?.feature(feature))
    }

    /// A field of this name; reads its type and the rest.
    fn typed(&mut self, name: String) -> Result<ExampleField, GrammarError> {
        self.skip_space();
        let start = self.at;
        let word = self.word();
        match word {
            "bytes" => return self.bytes(name),
            "strings" => return self.strings(name),
            _ => {}
        }
        let Some(dtype) = DTYPES.into_iter().find(|dtype| dtype.to_string() == word) else {
            let types: Vec<_> = DTYPES.iter().map(ToString::to_string).collect();
            return Err(
                self.wrong_since(start, format!("not a type: use {}, bytes or strings", types.join(", ")))
            );
        };
        self.array(name, dtype, Elements::Values)
    }

    /// A field of bytes; reads what follows its type.
    fn bytes(&mut self, name: String) -> Result<ExampleField, GrammarError> {
        self.skip_space();
        if self.rest().starts_with('[') {
            return self.array(name, Dtype::U8, Elements::Bytes);
        }
        let max = self.bytes_max()?;
        let field = ExampleField::bytes(name, max);
        if !self.take('=') {
            return Ok(field);
        }
        Ok(field.or_bytes(self.string_default(max)?))
    }

    /// A field of several strings; reads what follows its type.
    fn strings(&mut self, name: String) -> Result<ExampleField, GrammarError> {
        self.expect('[', "the number of strings, such as [3] or [<=8],")?;
        if self.take('<') {
            self.expect('=', "<= and the most strings of a record")?;
            let most = self.number()?;
            self.expect(']', "a closing bracket")?;
            return Ok(ExampleField::strings_up_to(name, most, self.bytes_max()?));
        }
        let shape = self.extents(AXES_MAX - 1)?;
        let max = self.bytes_max()?;
        let field = ExampleField::strings(name, shape, max);
        if !self.take('=') {
            return Ok(field);
        }
        if !self.take('[') {
            return Ok(field.or_strings([self.string_default(max)?]));
        }
        let mut strings = Vec::new();
        loop {
            strings.push(self.string_default(max)?);
            if !self.take(',') {
                self.expect(']', "a comma or a closing bracket")?;
                return Ok(field.or_strings(strings));
            }
        }
    }

    /// The most bytes of a string, in parentheses, if they follow.
    fn bytes_max(&mut self) -> Result<usize, GrammarError> {
        if !self.take('(') {
            return Ok(BYTES_MAX);
        }
        let max = self.number()?;
        self.expect(')', "a closing parenthesis")?;
        Ok(max)
    }

    /// A string in quotes, of at most `max` bytes.
    fn string_default(&mut self, max: usize) -> Result<Vec<u8>, GrammarError> {
        self.skip_space();
        let start = self.at;
        let default = self.quoted("a default in double quotes")?;
        if default.len() > max {
            return Err(self.wrong_since(
                start,
                format!("the default has {} bytes, but the field takes at most {max}", default.len()),
            ));
        }
        Ok(default)
    }

    /// A field of this type; reads its shape and the rest.
    fn array(
        &mut self,
        name: String,
        dtype: Dtype,
        elements: Elements,
    ) -> Result<ExampleField, GrammarError> {
        let of = |field| match elements {
            Elements::Bytes => ExampleField::of_bytes(field),
            _ => ExampleField::new(field),
        };
        if !self.take('[') {
            let default = self.values(dtype)?;
            return Ok(with_default(of(Field::scalar(name, dtype)), default));
        }
        if self.take('<') {
            self.expect('=', "<= and the most elements of a record")?;
            let max = self.number()?;
            self.expect(']', "a closing bracket")?;
            return Ok(of(match self.value(dtype)? {
                Some(pad) => Field::padded(name, dtype, max, pad),
                None => Field::ragged(name, dtype, max),
            }));
        }
        let extents = self.extents(AXES_MAX)?;
        let default = self.values(dtype)?;
        Ok(with_default(of(Field::new(name, dtype, extents)), default))
    }

    /// Extents, fewer than `end` of them, and a closing bracket.
    fn extents(&mut self, end: usize) -> Result<Vec<usize>, GrammarError> {
        self.skip_space();
        let start = self.at;
        let word = self.word();
        let extents = match word {
            "" => Ok(Vec::new()),
            word => word.split('x').map(|extent| self.extent(start, extent)).collect(),
        }?;
        if extents.len() >= end {
            return Err(self.wrong_since(start, format!("there are at most {} axes here", end - 1)));
        }
        self.expect(']', "a closing bracket")?;
        Ok(extents)
    }

    fn extent(&self, start: usize, word: &str) -> Result<usize, GrammarError> {
        word.parse().ok().filter(|&extent| extent > 0).ok_or_else(|| {
            self.wrong_since(start, "not a shape: use whole numbers of 1 or more, such as 128, 3x4 or <=8")
        })
    }

    fn number(&mut self) -> Result<usize, GrammarError> {
        self.skip_space();
        let start = self.at;
        let word = self.word();
        word.parse().ok().filter(|&number| number > 0).ok_or_else(|| {
            self.wrong_since(start, "not a number of elements: use a whole number of 1 or more")
        })
    }

    /// `=` and a value of this type, or one for each element in brackets, if they follow.
    fn values(&mut self, dtype: Dtype) -> Result<Option<Vec<Pad>>, GrammarError> {
        let start = self.at;
        if !self.take('=') {
            return Ok(None);
        }
        self.skip_space();
        if !self.take('[') {
            self.at = start;
            return Ok(self.value(dtype)?.map(|value| vec![value]));
        }
        let mut values = Vec::new();
        loop {
            values.push(self.value_until(dtype, &[',', ']'])?);
            if !self.take(',') {
                self.expect(']', "a comma or a closing bracket")?;
                return Ok(Some(values));
            }
        }
    }

    /// `=` and a value of this type, if they follow.
    fn value(&mut self, dtype: Dtype) -> Result<Option<Pad>, GrammarError> {
        if !self.take('=') {
            return Ok(None);
        }
        self.value_until(dtype, &[',']).map(Some)
    }

    /// A value of this type, which ends at the text's end or at one of these characters.
    fn value_until(&mut self, dtype: Dtype, ends: &[char]) -> Result<Pad, GrammarError> {
        self.skip_space();
        let start = self.at;
        let rest = self.rest();
        let word = rest[..rest.find(ends).unwrap_or(rest.len())].trim_end();
        self.at += word.len();
        let is_float = matches!(dtype, Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64);
        // A number too large for any float reads as infinity, which has no digit.
        let is_meant = |float: &f64| !float.is_infinite() || !word.contains(|c: char| c.is_ascii_digit());
        let pad = match is_float {
            true => word.parse().ok().filter(is_meant).map(Pad::Float),
            false => word.parse().ok().map(Pad::Integer),
        };
        let is_of_type = |pad: &Pad| Field::scalar("", dtype).pad_bytes(*pad).is_some();
        pad.filter(is_of_type).ok_or_else(|| self.wrong_since(start, format!("not a value of {dtype}")))
    }

    fn feature_name(&mut self) -> Result<String, GrammarError> {
        let start = self.at;
        let name = self.quoted("a feature's name in double quotes")?;
        String::from_utf8(name).map_err(|_| self.wrong_since(start, "a feature's name is UTF-8"))
    }

    /// The bytes between double quotes. A backslash escapes.
    fn quoted(&mut self, named: &str) -> Result<Vec<u8>, GrammarError> {
        let start = self.at;
        self.expect('"', named)?;
        let mut bytes = Vec::new();
        loop {
            let mut letters = self.rest().chars();
            let Some(letter) = letters.next() else {
                return Err(self.wrong_since(start, "the quotes do not end"));
            };
            match (letter, letters.next()) {
                ('"', _) => {
                    self.at += 1;
                    return Ok(bytes);
                }
                ('\\', Some('x')) => {
                    let digits = self.rest().get(2..4).filter(|digits| !digits.starts_with('+'));
                    let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                    bytes.push(byte.ok_or_else(|| self.wrong("\\x takes two hexadecimal digits"))?);
                    self.at += 4;
                }
                ('\\', escaped) => {
                    let escapes = [('n', b'\n'), ('r', b'\r'), ('t', b'\t')];
                    let signs = [('\\', b'\\'), ('"', b'"'), ('\'', b'\'')];
                    let known = escapes.into_iter().chain(signs).find(|&(sign, _)| Some(sign) == escaped);
                    let (_, byte) =
                        known.ok_or_else(|| self.wrong("use \\\\, \\\", \\n, \\r, \\t or \\xNN"))?;
                    bytes.push(byte);
                    self.at += 2;
                }
                (letter, _) => {
                    bytes.extend(letter.encode_utf8(&mut [0; 4]).bytes());
                    self.at += letter.len_utf8();
                }
            }
        }
    }
}

fn with_default(field: ExampleField, default: Option<Vec<Pad>>) -> ExampleField {
    match default {
        Some(values) => field.or_values(values),
        None => field,
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '/')
}

/// Writes the text from which the same fields are read.
impl fmt::Display for ExampleFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, field) in self.fields.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{field}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ExampleField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, feature) = (self.field.name(), &*self.feature);
        if feature.is_empty() || !feature.chars().all(is_of_word) {
            write!(f, "\"{}\" as ", feature.as_bytes().escape_ascii())?;
        } else if feature != name {
            write!(f, "{feature} as ")?;
        }
        write!(f, "{name}:")?;
        match (self.elements, self.field.kind()) {
            (Elements::Bytes, FieldKind::Padded { max, .. }) if self.is_string() => {
                write!(f, "bytes")?;
                write_max(f, max)?;
            }
            (Elements::Strings, _) => {
                let (shape, max) = self.strings_shape().unwrap_or_default();
                let most = if self.has_most() { "<=" } else { "" };
                let extents: Vec<_> = shape.iter().map(usize::to_string).collect();
                write!(f, "strings[{most}{}]", extents.join("x"))?;
                write_max(f, max)?;
            }
            (elements, kind) => {
                match elements {
                    Elements::Bytes => write!(f, "bytes"),
                    _ => write!(f, "{}", self.field.dtype()),
                }?;
                match kind {
                    FieldKind::Fixed(extents) if extents.is_empty() && elements == Elements::Values => Ok(()),
                    FieldKind::Fixed(extents) if extents.is_empty() => write!(f, "[]"),
                    FieldKind::Fixed(extents) => write!(f, "[{extents}]"),
                    FieldKind::Padded { max, pad } => write!(f, "[<={max}]={pad}"),
                    FieldKind::Ragged { max } => write!(f, "[<={max}]"),
                }?;
            }
        }
        match &self.missing {
            Missing::Error | Missing::Empty => Ok(()),
            Missing::Values(values) => write_default(f, values.iter().map(Pad::to_string)),
            Missing::Bytes(bytes) => write_default(f, [quoted(bytes)].into_iter()),
            Missing::Strings(strings) => write_default(f, strings.iter().map(|string| quoted(string))),
        }
    }
}

fn write_max(f: &mut fmt::Formatter<'_>, max: usize) -> fmt::Result {
    if max == BYTES_MAX { Ok(()) } else { write!(f, "({max})") }
}

/// Writes the value of a default, or its values in brackets.
fn write_default(f: &mut fmt::Formatter<'_>, values: impl Iterator<Item = String>) -> fmt::Result {
    let values: Vec<_> = values.collect();
    match &values[..] {
        [value] => write!(f, "={value}"),
        values => write!(f, "=[{}]", values.join(",")),
    }
}

fn quoted(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}

#[cfg(feature = "serde")]
impl serde::Serialize for ExampleFields {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for ExampleFields {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <String as serde::Deserialize>::deserialize(deserializer)?;
        if text.is_empty() {
            return Ok(ExampleFields::new());
        }
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(text: &str) -> ExampleFields {
        let fields: ExampleFields = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        fields.check().unwrap();
        assert_eq!(fields.to_string().parse(), Ok(fields.clone()), "{fields}");
        fields
    }

    #[test]
    fn what_is_read_is_written() {
        for text in [
            "input:i64[128],label:i64,name:bytes,ragged:i64[<=8]=-1",
            "a:i8=-128,b:u64=18446744073709551615,c:f16=0.5,d:bf16[2x3]=-1,e:f64[<=1]=-inf,f:f32=inf",
            "image/encoded:bytes[<=100000],x:bytes[3x32x32]=7,y:bytes(12)=\"none\",z:bytes[<=4]=0,w:bytes[]",
            "a:f32[3]=[0.5,-1,inf],b:i64[2x2]=[1,2,3,4],c:bytes[2]=[7,8],d:i64[2]=5",
            "a:strings[3],b:strings[2x3](16)=\"none\",c:strings[<=8](4)",
            "d:strings[2]=[\"a\",\"\\xff\"],e:strings[](1)",
            "image/class/label as label:i64,\"a.b:c\" as abc:u8[1x2x3x4x5x6x7],\"\\\"\\\\\\x00\" as q:i32",
        ] {
            assert_eq!(reads(text).to_string(), text);
        }
        assert_eq!(
            reads(" a : i64 [ 2x3 ] = 5 , \"b\" as b : bytes ( 256 ) ").to_string(),
            "a:i64[2x3]=5,b:bytes"
        );
        assert_eq!(reads("as:i64,as as as:i64").fields()[1].feature_name(), "as");
        assert_eq!(reads("ä:i64").fields()[0].field().name(), "ä");
        assert_eq!(reads("\"ä.\" as b:bytes=\"ä\"").fields()[0].feature_name(), "ä.");
    }

    #[track_caller]
    fn check_errors(cases: &[(&str, &str)]) {
        for (text, message) in cases {
            let error = text.parse::<ExampleFields>().unwrap_err();
            assert_eq!(error.to_string(), format!("the fields cannot be read {message}"), "{text}");
        }
    }

    #[test]
    fn errors_say_where_and_what() {
        check_errors(&[
            ("", "at character 1, the end: a field should follow, such as input:i64[128]"),
            ("a:i64,", "at character 7, the end: a field should follow, such as input:i64[128]"),
            ("a", "at character 2, the end: a colon and the field's type, such as :i64[128], should follow"),
            (
                "a:i65[1]",
                "at character 3, \"i65[1]\": not a type: use i8, i16, i32, i64, u8, u16, u32, u64, f16, \
                 bf16, f32, f64, bytes or strings",
            ),
            (
                "a:i64[0]",
                "at character 7, \"0]\": not a shape: use whole numbers of 1 or more, such as 128, 3x4 or \
                 <=8",
            ),
            (
                "a:i64[3x]",
                "at character 7, \"3x]\": not a shape: use whole numbers of 1 or more, such as 128, 3x4 or \
                 <=8",
            ),
            (
                "a:i64[-1]",
                "at character 7, \"-1]\": not a shape: use whole numbers of 1 or more, such as 128, 3x4 or \
                 <=8",
            ),
            ("a:i64[1", "at character 8, the end: a closing bracket should follow"),
            ("a:i64[<8]", "at character 8, \"8]\": <= and the most elements of a record should follow"),
            (
                "a:i64[<=x]",
                "at character 9, \"x]\": not a number of elements: use a whole number of 1 or more",
            ),
            ("a:i64[1x1x1x1x1x1x1x1]", "at character 7, \"1x1x1x1x1x1x1x1]\": there are at most 7 axes here"),
            ("a:i8=128", "at character 6, \"128\": not a value of i8"),
            ("a:i64=1.5,b:i64", "at character 7, \"1.5,b:i64\": not a value of i64"),
            ("a:f32=1e400", "at character 7, \"1e400\": not a value of f32"),
            ("a:f64[2]=[1,1e400]", "at character 13, \"1e400]\": not a value of f64"),
            ("a:i64[2]=[1,2", "at character 14, the end: a comma or a closing bracket should follow"),
            ("a:f16=70000", "at character 7, \"70000\": not a value of f16"),
            ("a:bytes=none", "at character 9, \"none\": a default in double quotes should follow"),
            ("a:bytes=\"none", "at character 9, \"\\\"none\": the quotes do not end"),
            (
                "a:bytes(2)=\"none\"",
                "at character 12, \"\\\"none\\\"\": the default has 4 bytes, but the field takes at most 2",
            ),
            ("a:bytes=\"\\q\"", "at character 10, \"\\\\q\\\"\": use \\\\, \\\", \\n, \\r, \\t or \\xNN"),
            ("\"a\":i64", "at character 4, \":i64\": as NAME should follow, with the field's name"),
            ("a/:i64", "at character 1, \"a/:i64\": not a field's name: use letters, digits, _, - and /"),
            (
                "a:i64 b:i64",
                "at character 7, \"b:i64\": a comma and the next field, or the end should follow",
            ),
            (
                "a:i64;b:i64",
                "at character 6, \";b:i64\": a comma and the next field, or the end should follow",
            ),
        ]);
    }

    #[test]
    fn errors_in_several_strings_say_where_and_what() {
        check_errors(&[
            (
                "a:strings",
                "at character 10, the end: the number of strings, such as [3] or [<=8], should follow",
            ),
            (
                "a:strings[1x1x1x1x1x1x1]",
                "at character 11, \"1x1x1x1x1x1x1]\": there are at most 6 axes here",
            ),
            (
                "a:strings[<=2]=\"b\"",
                "at character 15, \"=\\\"b\\\"\": a comma and the next field, or the end should follow",
            ),
            (
                "a:strings[2](2)=[\"a\",\"non\"]",
                "at character 22, \"\\\"non\\\"]\": the default has 3 bytes, but the field takes at most 2",
            ),
        ]);
    }

    #[test]
    fn there_are_as_many_fields_as_a_batch_can_have() {
        let many = vec!["a:i64"; 65].join(",");
        let error = many.parse::<ExampleFields>().unwrap_err().to_string();
        assert!(error.contains("there are 64 fields already"), "{error}");
    }
}
