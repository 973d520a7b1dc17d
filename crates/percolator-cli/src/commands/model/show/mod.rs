//! `percolator model show`: what a model holds, or one tensor's values.

mod graph;
mod objects;
mod tensor;

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use percolator_tensorflow::convert::Model;
use percolator_tensorflow::{GraphError, MetaGraph, SavedModel};

use super::list::{by_name, write_table};
use super::{How, stdout};

#[derive(Debug, Args)]
pub(super) struct Show {
    /// A SavedModel (its folder, or its saved_model.pb or .pbtxt), a graph (.meta, .pb or .pbtxt), a
    /// checkpoint (its prefix, one of its files, or a folder with a file "checkpoint"), a .safetensors, .npz
    /// or .npy file, or a folder of .npy files.
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Show the values of this tensor: its name, or the path of its object (net/w), or of a graph's constant.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Print the graph for Graphviz (dot -Tsvg).
    #[arg(long, conflicts_with_all = ["name", "json"])]
    dot: bool,
    /// With --dot, draw only the nodes that this signature needs.
    #[arg(long, value_name = "NAME", requires = "dot")]
    signature: Option<String>,
    /// The meta graph of a SavedModel with these tags, such as serve [default: all; with --dot, the first].
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    tags: Vec<String>,
}

/// What has a graph.
enum Graphs {
    Saved(SavedModel),
    Alone(Box<MetaGraph>),
}

impl Graphs {
    /// Opens what a path leads to, if it is a SavedModel or a graph.
    fn open(path: &Path) -> Result<Option<Self>, GraphError> {
        let [name, ending] = [path.file_name(), path.extension()].map(|part| part?.to_str());
        let is_model = match name {
            _ if path.is_dir() => ["saved_model.pb", "saved_model.pbtxt", "saved_model.cpb"]
                .iter()
                .any(|name| path.join(name).is_file()),
            Some("saved_model.pb" | "saved_model.pbtxt") => path.is_file(),
            _ => false,
        };
        if is_model {
            return Ok(Some(Graphs::Saved(SavedModel::open(path)?)));
        }
        if !path.is_file() || !matches!(ending, Some("pb" | "pbtxt" | "meta")) {
            return Ok(None);
        }
        Ok(Some(Graphs::Alone(Box::new(MetaGraph::open(path)?))))
    }

    /// The graphs that are asked for.
    fn chosen(&self, tags: &[String]) -> Result<Vec<&MetaGraph>, GraphError> {
        match self {
            Graphs::Alone(graph) => Ok(vec![graph]),
            Graphs::Saved(model) if tags.is_empty() => Ok(model.meta_graphs().iter().collect()),
            Graphs::Saved(model) => {
                let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
                Ok(vec![model.meta_graph(&tags)?])
            }
        }
    }
}

impl Show {
    pub(super) fn run(&self, how: How) -> anyhow::Result<()> {
        let graphs = Graphs::open(&self.path)?;
        match (&graphs, &self.name) {
            (Some(graphs), Some(name)) => self.tensor_of_graph(graphs, name, how),
            (Some(graphs), None) if self.dot => self.dot(graphs),
            (Some(graphs), None) => graph::show(graphs, &graphs.chosen(&self.tags)?, how),
            (None, _) if self.dot => bail!(
                "{}: --dot draws the graph of a SavedModel or of a .meta, .pb or .pbtxt file: this is none",
                percolator_files::shown::path(&self.path)
            ),
            (None, Some(name)) => tensor::show(&Model::open(&self.path)?, name, how),
            (None, None) => self.model(how),
        }
    }

    /// The objects of a checkpoint, or else the tensors.
    fn model(&self, how: How) -> anyhow::Result<()> {
        let model = Model::open(&self.path)?;
        match model.checkpoint().filter(|checkpoint| checkpoint.contains(objects::GRAPH)) {
            Some(checkpoint) => objects::show(checkpoint, how),
            None if how.json => tensor::list_json(&model),
            None => {
                let mut out = stdout();
                write_table(&model, &by_name(&model), &mut out)?;
                out.finish()
            }
        }
    }

    /// A variable's value, or that of a constant.
    fn tensor_of_graph(&self, graphs: &Graphs, name: &str, how: How) -> anyhow::Result<()> {
        let mut fault = None;
        for graph in graphs.chosen(&self.tags)? {
            match graph.constant(name) {
                Ok(tensor) => return tensor::write(name, &tensor, how),
                Err(error) => fault = Some(error),
            }
        }
        // A graph without constants of this name may have a variable.
        let variables = match graphs {
            Graphs::Saved(model) => Model::open(model.variables_prefix()),
            Graphs::Alone(_) => Model::open(&self.path),
        };
        match (variables, fault) {
            (Ok(model), _) => tensor::show(&model, name, how),
            (Err(_), Some(fault)) => Err(fault.into()),
            (Err(error), None) => Err(error.into()),
        }
    }

    fn dot(&self, graphs: &Graphs) -> anyhow::Result<()> {
        let graphs = graphs.chosen(&self.tags)?;
        let Some(graph) = graphs.first() else {
            bail!("{}: the model has no graph", percolator_files::shown::path(&self.path));
        };
        let dot = match &self.signature {
            None => graph.to_dot(),
            Some(name) => graph.dot_of(graph.needed_for(&graph.signature(name)?)?),
        };
        stdout().text(dot.as_bytes())
    }
}
