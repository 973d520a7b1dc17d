//! Loads a SavedModel: its signature, its variables, and what the signature needs of its graph; then computes
//! the signature by hand and compares the results with TensorFlow's.
//!
//! ```console
//! $ cargo run -p percolator-tensorflow --example saved_model [FOLDER INPUTS_AND_OUTPUTS.npz]
//! ```
//!
//! Without arguments it takes a model that TensorFlow saved, from the tests' data. It knows only the
//! operations of a few dense layers. This is not a way to run models: it shows that everything needed is
//! there.

use std::collections::HashMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use percolator_tensorflow::convert::Model;
use percolator_tensorflow::graph::{Attr, Input, Node, Signature};
use percolator_tensorflow::{Checkpoint, MetaGraph, SavedModel, Tensor};

/// How far a result may be from TensorFlow's, as a part of the largest one: TensorFlow adds the products of a
/// row in another order, and each of 100 sums rounds to 24 bits.
const TOLERANCE: f32 = 1e-5;

/// Rows of numbers. A vector is one row.
#[derive(Clone)]
struct Matrix {
    rows: usize,
    columns: usize,
    values: Vec<f32>,
}

impl Matrix {
    fn of(tensor: &Tensor<'_>) -> Result<Self> {
        let (rows, columns) = match *tensor.shape() {
            [] => (1, 1),
            [columns] => (1, columns),
            [rows, columns] => (rows, columns),
            ref shape => bail!("an array of shape {shape:?} is no matrix"),
        };
        Ok(Matrix { rows, columns, values: tensor.values::<f32>()?.into_owned() })
    }

    fn at(&self, row: usize, column: usize, is_transposed: bool) -> f32 {
        let (row, column) = if is_transposed { (column, row) } else { (row, column) };
        self.values[row * self.columns + column]
    }

    fn times(&self, other: &Matrix, transposed: [bool; 2]) -> Result<Matrix> {
        let sides = |matrix: &Matrix, is_transposed| match is_transposed {
            true => (matrix.columns, matrix.rows),
            false => (matrix.rows, matrix.columns),
        };
        let ((rows, inner), (other_inner, columns)) =
            (sides(self, transposed[0]), sides(other, transposed[1]));
        ensure!(inner == other_inner, "{inner} columns times {other_inner} rows");
        let mut values = Vec::with_capacity(rows * columns);
        for row in 0..rows {
            for column in 0..columns {
                let products = (0..inner)
                    .map(|at| self.at(row, at, transposed[0]) * other.at(at, column, transposed[1]));
                values.push(products.sum());
            }
        }
        Ok(Matrix { rows, columns, values })
    }

    /// Adds a matrix, or a row to each row.
    fn plus(&self, other: &Matrix) -> Result<Matrix> {
        ensure!(self.columns == other.columns, "{} columns and {}", self.columns, other.columns);
        ensure!(other.rows == 1 || other.rows == self.rows, "{} rows and {}", self.rows, other.rows);
        let values = self.values.iter().zip(other.values.iter().cycle());
        Ok(Matrix { values: values.map(|(one, other)| one + other).collect(), ..*self })
    }
}

fn main() -> Result<()> {
    let data = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data"));
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let folder = arguments.next().unwrap_or_else(|| data.join("article_resource_saved_model"));
    let arrays = arguments.next().unwrap_or_else(|| data.join("article_resource_io.npz"));

    let model = SavedModel::open(&folder)?;
    let graph = model.meta_graph(&["serve"])?;
    let version = graph.tensorflow_version().unwrap_or("an unknown version");
    println!("{}, saved by TensorFlow {version}", folder.display());
    let signatures = graph.signatures()?;
    let signature = signatures.iter().find(|one| !one.name().starts_with("__saved_model"));
    let signature = signature.context("the model has no signature")?;
    println!("signature {}", signature.name());
    signature.inputs().iter().for_each(|input| println!("  takes {input}"));
    signature.outputs().iter().for_each(|output| println!("  gives {output}"));

    let variables = variables(&model, graph)?;
    let arrays = arrays_of(&arrays)?;
    let computed = compute(graph, signature, &variables, &arrays)?;
    for output in signature.outputs() {
        let name = output.name();
        let ours = &computed[Input::parse(output.tensor().context("an output of one tensor")?).node()];
        let theirs = arrays.get(name).with_context(|| format!("the arrays have no {name}"))?;
        ensure!((ours.rows, ours.columns) == (theirs.rows, theirs.columns), "{name} has another shape");
        let largest = theirs.values.iter().fold(0_f32, |largest, value| largest.max(value.abs()));
        let pairs = ours.values.iter().zip(&theirs.values);
        let difference = pairs.fold(0_f32, |most, (one, other)| most.max((one - other).abs()));
        println!("{name}: {} x {}, {difference:e} from TensorFlow's at the most", ours.rows, ours.columns);
        ensure!(difference <= TOLERANCE * largest, "{name} is not what TensorFlow computes");
    }
    println!("the outputs are TensorFlow's");
    Ok(())
}

/// The values of the variables, by the names of their nodes.
fn variables(model: &SavedModel, graph: &MetaGraph) -> Result<HashMap<String, Matrix>> {
    let checkpoint = Checkpoint::open(model.variables_prefix())?;
    let mut values = HashMap::new();
    for variable in graph.variables()? {
        let Some(key) = &variable.checkpoint_key else { continue };
        let tensor = checkpoint.tensor(key)?;
        println!("variable {}: {} {:?}", variable.name, tensor.data_type(), tensor.shape());
        values.insert(variable.name, Matrix::of(&tensor)?);
    }
    Ok(values)
}

/// The arrays of a file of NumPy's, by name.
fn arrays_of(path: &std::path::Path) -> Result<HashMap<String, Matrix>> {
    let file = Model::open(path)?;
    let arrays = file.tensors().iter().enumerate();
    arrays.map(|(place, info)| Ok((info.name.clone(), Matrix::of(&file.read(place)?)?))).collect()
}

/// Computes all nodes that the signature needs, in their order; returns their values by name.
fn compute(
    graph: &MetaGraph,
    signature: &Signature<'_>,
    variables: &HashMap<String, Matrix>,
    arrays: &HashMap<String, Matrix>,
) -> Result<HashMap<String, Matrix>> {
    let mut values: HashMap<String, Matrix> = HashMap::new();
    for input in signature.inputs() {
        let array = arrays.get(input.name()).with_context(|| format!("no array {}", input.name()))?;
        let node = Input::parse(input.tensor().context("an input of one tensor")?).node();
        values.insert(node.to_owned(), array.clone());
    }
    for node in graph.needed_for(signature)? {
        if values.contains_key(node.name()) {
            continue;
        }
        println!("node {} {}({})", node.name(), node.op(), node.input_names().join(", "));
        let value = match node.op() {
            "Const" => Matrix::of(&graph.constant(node.name())?)?,
            "VariableV2" | "VarHandleOp" => {
                variables.get(node.name()).with_context(|| format!("no value of {}", node.name()))?.clone()
            }
            "Identity" | "ReadVariableOp" => operand(node, 0, &values)?.clone(),
            "MatMul" => {
                let is = |name| matches!(node.attr(name), Some(Attr::Bool(true)));
                let transposed = [is("transpose_a"), is("transpose_b")];
                operand(node, 0, &values)?.times(operand(node, 1, &values)?, transposed)?
            }
            "Add" | "AddV2" | "BiasAdd" => operand(node, 0, &values)?.plus(operand(node, 1, &values)?)?,
            op => bail!("{}: this example does not compute {op}", node.name()),
        };
        values.insert(node.name().to_owned(), value);
    }
    Ok(values)
}

/// The value of one of a node's inputs.
fn operand<'a>(node: Node<'_>, number: usize, values: &'a HashMap<String, Matrix>) -> Result<&'a Matrix> {
    let input = node.inputs().nth(number).with_context(|| format!("{} lacks an input", node.name()))?;
    values.get(input.node()).with_context(|| format!("{input} has no value yet"))
}
