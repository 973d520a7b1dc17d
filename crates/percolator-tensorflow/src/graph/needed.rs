//! Dependencies between nodes. No function recurses: a chain may be as long as the file.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashSet};
use std::fmt;

use percolator_files::shown;

use super::error::{GraphError, list};
use super::meta_graph::MetaGraph;
use super::node::{Input, Node};
use super::signature::Signature;

/// What is wrong with a graph.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GraphFault {
    /// A node has an input that is not there.
    MissingInput {
        /// The function that the node is part of; the graph itself if `None`.
        function: Option<String>,
        /// The node.
        node: String,
        /// Its input, as it is written.
        input: String,
    },
    /// Several nodes have one name.
    DuplicateNode {
        /// The function that the nodes are part of; the graph itself if `None`.
        function: Option<String>,
        /// Their name.
        name: String,
    },
    /// Nodes need one another, other than by a loop's NextIteration.
    Cycle {
        /// The function that the nodes are part of; the graph itself if `None`.
        function: Option<String>,
        /// Some of the nodes, in the order in which each needs the next.
        nodes: Vec<String>,
    },
}

impl fmt::Display for GraphFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (GraphFault::MissingInput { function, .. }
        | GraphFault::DuplicateNode { function, .. }
        | GraphFault::Cycle { function, .. }) = self;
        if let Some(function) = function {
            write!(f, "function {}: ", shown::message(function))?;
        }
        match self {
            GraphFault::MissingInput { node, input, .. } => {
                let (node, input) = (shown::message(node), shown::message(input));
                write!(f, "the input {input} of node {node} is not there")
            }
            GraphFault::DuplicateNode { name, .. } => {
                write!(f, "several nodes are named {}", shown::message(name))
            }
            GraphFault::Cycle { nodes, .. } => {
                write!(f, "nodes that need one another have no order: {}", list(nodes))
            }
        }
    }
}

impl MetaGraph {
    /// Returns the nodes that the outputs of a signature need, given its inputs: [`needed`](Self::needed).
    ///
    /// # Errors
    ///
    /// As [`needed`](Self::needed).
    pub fn needed_for(&self, signature: &Signature<'_>) -> Result<Vec<Node<'_>>, GraphError> {
        let outputs = signature.outputs().iter().flat_map(super::SignatureTensor::tensors);
        let given = signature.inputs().iter().flat_map(super::SignatureTensor::tensors);
        self.needed(&outputs.collect::<Vec<_>>(), &given.collect::<Vec<_>>())
    }

    /// Returns the nodes that these outputs need (`y`, `y:1`, or `^y` for a node without outputs), given the
    /// values of some tensors: each node after those that it needs, control inputs included, and in the order
    /// of the file where that is free. The nodes of given tensors are among them, but not what they need.
    ///
    /// A loop of TensorFlow 1 needs the node that begins its next iteration, and is no reason to go round.
    ///
    /// # Errors
    ///
    /// [`GraphError::NoNode`] if an output or an input is not there, [`GraphError::DuplicateNode`] if a name
    /// is that of two nodes, [`GraphError::Cycle`] if nodes have no order.
    pub fn needed(
        &self,
        outputs: &[impl AsRef<str>],
        given: &[impl AsRef<str>],
    ) -> Result<Vec<Node<'_>>, GraphError> {
        let place = |name: &str| {
            let input = Input::parse(name);
            Ok::<_, GraphError>((self.number_of(input, None)?, output_of(input)))
        };
        let fed: HashSet<_> = given.iter().map(|name| place(name.as_ref())).collect::<Result<_, _>>()?;
        let mut next: Vec<_> = outputs.iter().map(|name| place(name.as_ref())).collect::<Result<_, _>>()?;
        let count = self.node_protos().len();
        let (mut is_needed, mut is_walked) = (vec![false; count], vec![false; count]);
        while let Some((number, output)) = next.pop() {
            is_needed[number] = true;
            let is_fed = output.is_some() && fed.contains(&(number, output));
            if is_fed || std::mem::replace(&mut is_walked[number], true) {
                continue;
            }
            let node = self.at(number);
            for input in node.inputs() {
                next.push((self.number_of(input, Some(node))?, output_of(input)));
            }
        }
        let inputs = |number: usize| {
            let inputs = if is_walked[number] { self.at(number).proto.input.as_slice() } else { &[] };
            inputs.iter().filter_map(|input| self.node_number(Input::parse(input).node()))
        };
        let numbers: Vec<usize> = (0..count).filter(|number| is_needed[*number]).collect();
        let ordered = in_order(count, &numbers, inputs, |number| is_next_iteration(self.at(number)));
        let ordered = ordered.map_err(|cycle| {
            let nodes = cycle.into_iter().map(|number| self.at(number).name().to_owned()).collect();
            GraphError::Cycle { path: self.path().to_owned(), nodes }
        })?;
        Ok(ordered.into_iter().map(|number| self.at(number)).collect())
    }

    /// Returns the nodes that have an output of this node as an input, with the number of that input, in the
    /// order of the file. A node that has several comes several times.
    ///
    /// # Errors
    ///
    /// [`GraphError::NoNode`] if the node is not there.
    pub fn consumers(&self, node: &str) -> Result<Vec<(Node<'_>, usize)>, GraphError> {
        let name = self.at(self.number_of(Input::Control(node), None)?).name();
        let consumed = self.nodes().flat_map(|consumer| {
            let inputs = consumer.inputs().enumerate();
            inputs.filter(|(_, input)| input.node() == name).map(move |(number, _)| (consumer, number))
        });
        Ok(consumed.collect())
    }

    /// Returns the nodes that depend on this one, directly or through others, in the order of the file.
    ///
    /// # Errors
    ///
    /// [`GraphError::NoNode`] if the node is not there.
    pub fn fed_by(&self, node: &str) -> Result<Vec<Node<'_>>, GraphError> {
        let first = self.number_of(Input::Control(node), None)?;
        let mut consumers = vec![Vec::new(); self.node_protos().len()];
        for (number, node) in self.nodes().enumerate() {
            for input in node.inputs() {
                if let Some(producer) = self.node_number(input.node()) {
                    consumers[producer].push(number);
                }
            }
        }
        let (mut fed, mut next) = (BTreeSet::new(), vec![first]);
        while let Some(number) = next.pop() {
            next.extend(consumers[number].iter().copied().filter(|consumer| fed.insert(*consumer)));
        }
        Ok(fed.into_iter().map(|number| self.at(number)).collect())
    }

    /// Returns the functions of the library that these nodes call or name, and those that their nodes do,
    /// each once, in the order of the library.
    pub fn functions_of<'a>(
        &'a self,
        nodes: impl IntoIterator<Item = Node<'a>>,
    ) -> Vec<super::GraphFunction<'a>> {
        let by_name: std::collections::HashMap<_, _> =
            self.functions().enumerate().map(|(number, function)| (function.name(), number)).collect();
        let called = |node: Node<'a>| {
            let names = node.functions().into_iter().chain([node.op()]);
            names.filter_map(|name| by_name.get(name).copied()).collect::<Vec<_>>()
        };
        let functions: Vec<_> = self.functions().collect();
        let mut found = BTreeSet::new();
        let mut next: Vec<usize> = nodes.into_iter().flat_map(called).collect();
        while let Some(number) = next.pop() {
            if found.insert(number) {
                next.extend(functions[number].nodes().flat_map(called));
            }
        }
        found.into_iter().map(|number| functions[number]).collect()
    }

    /// Returns what is wrong with the graph and the functions of its library: inputs that are not there,
    /// names of several nodes, nodes that need one another.
    #[must_use]
    pub fn faults(&self) -> Vec<GraphFault> {
        let mut faults = faults_of(None, &self.nodes().collect::<Vec<_>>(), &[]);
        for function in self.functions() {
            let mut arguments: Vec<&str> = function.arguments().map(|(name, _)| name).collect();
            arguments.sort_unstable();
            let nodes: Vec<_> = function.nodes().collect();
            faults.extend(faults_of(Some(function.name()), &nodes, &arguments));
        }
        faults
    }

    fn at(&self, number: usize) -> Node<'_> {
        Node { proto: &self.node_protos()[number] }
    }

    /// The number of the node that an input names, which must be the only one of its name.
    fn number_of(&self, input: Input<'_>, input_of: Option<Node<'_>>) -> Result<usize, GraphError> {
        let name = input.node();
        let is_of_function = matches!(input, Input::Named { .. });
        let Some(number) = self.node_number(name).filter(|_| !is_of_function) else {
            let name = if is_of_function { input.to_string() } else { name.to_owned() };
            let input_of = input_of.map(|node| node.name().to_owned());
            return Err(GraphError::NoNode { path: self.path().to_owned(), name, input_of });
        };
        let by_name = self.numbers_by_name();
        let at = by_name.partition_point(|one| *self.at(*one).name() < *name);
        match by_name.get(at + 1) {
            Some(other) if self.at(*other).name() == name => {
                Err(GraphError::DuplicateNode { path: self.path().to_owned(), name: name.to_owned() })
            }
            _ => Ok(number),
        }
    }
}

/// Which output an input takes; `None` if it only says what runs before.
fn output_of(input: Input<'_>) -> Option<usize> {
    match input {
        Input::Tensor { output, .. } => Some(output),
        Input::Named { number, .. } => Some(number),
        Input::Control(_) => None,
    }
}

fn is_next_iteration(node: Node<'_>) -> bool {
    matches!(node.op(), "NextIteration" | "RefNextIteration")
}

/// Puts nodes into an order in which each comes after its inputs, and in the order of their numbers where
/// that is free. What `closes_loop` comes after its inputs as well, but nothing need come after it. The error
/// is some nodes that need one another.
fn in_order<I: Iterator<Item = usize>>(
    count: usize,
    numbers: &[usize],
    inputs: impl Fn(usize) -> I,
    closes_loop: impl Fn(usize) -> bool,
) -> Result<Vec<usize>, Vec<usize>> {
    let mut is_among = vec![false; count];
    numbers.iter().for_each(|&number| is_among[number] = true);
    let (mut consumers, mut waits_for) = (vec![Vec::new(); count], vec![0_usize; count]);
    for &number in numbers {
        for input in inputs(number).filter(|input| is_among[*input] && !closes_loop(*input)) {
            consumers[input].push(number);
            waits_for[number] += 1;
        }
    }
    let ready = numbers.iter().copied().filter(|number| waits_for[*number] == 0);
    let mut ready: BinaryHeap<_> = ready.map(Reverse).collect();
    let mut ordered = Vec::with_capacity(numbers.len());
    while let Some(Reverse(number)) = ready.pop() {
        ordered.push(number);
        for &consumer in &consumers[number] {
            waits_for[consumer] -= 1;
            if waits_for[consumer] == 0 {
                ready.push(Reverse(consumer));
            }
        }
    }
    let Some(&left) = numbers.iter().find(|number| waits_for[**number] > 0) else { return Ok(ordered) };
    // A node that still waits does so for another one that waits: following them leads round a cycle.
    let (mut way, mut seen) = (Vec::new(), vec![false; count]);
    let mut at = left;
    while !std::mem::replace(&mut seen[at], true) {
        way.push(at);
        let waiting = |input: &usize| is_among[*input] && waits_for[*input] > 0 && !closes_loop(*input);
        let Some(input) = inputs(at).find(waiting) else { break };
        at = input;
    }
    let start = way.iter().position(|number| *number == at).unwrap_or(0);
    Err(way.split_off(start))
}

/// The faults of a graph, or of a function with these arguments, which are sorted.
fn faults_of(function: Option<&str>, nodes: &[Node<'_>], arguments: &[&str]) -> Vec<GraphFault> {
    let function = || function.map(str::to_owned);
    let mut faults = Vec::new();
    let mut by_name: Vec<usize> = (0..nodes.len()).collect();
    by_name.sort_by_key(|&number| nodes[number].name());
    let find = |name: &str| {
        let at = by_name.partition_point(|number| *nodes[*number].name() < *name);
        by_name.get(at).copied().filter(|number| nodes[*number].name() == name)
    };
    let mut reported = None;
    for pair in by_name.windows(2) {
        let name = nodes[pair[0]].name();
        if name == nodes[pair[1]].name() && reported != Some(name) {
            faults.push(GraphFault::DuplicateNode { function: function(), name: name.to_owned() });
            reported = Some(name);
        }
    }
    for node in nodes {
        for (input, text) in node.inputs().zip(node.input_names()) {
            let is_argument = arguments.binary_search(&input.node()).is_ok();
            if find(input.node()).is_none() && !is_argument {
                let (node, input) = (node.name().to_owned(), text.clone());
                faults.push(GraphFault::MissingInput { function: function(), node, input });
            }
        }
    }
    let numbers: Vec<usize> = (0..nodes.len()).collect();
    let inputs = |number: usize| nodes[number].inputs().filter_map(|input| find(input.node()));
    let is_last = |number: usize| is_next_iteration(nodes[number]);
    if let Err(cycle) = in_order(nodes.len(), &numbers, inputs, is_last) {
        let nodes = cycle.into_iter().map(|number| nodes[number].name().to_owned()).collect();
        faults.push(GraphFault::Cycle { function: function(), nodes });
    }
    faults
}
