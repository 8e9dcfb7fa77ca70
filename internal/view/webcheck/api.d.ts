// The answers of the API. TestTheTypesOfThePageAreThoseOfTheAPI keeps this file: its flag -update writes it again.

export interface Accounting {
  step: number;
  issued: number;
  bars: Bar[];
  groups: Record<string, number>;
  again: number;
  further: Record<string, number>;
  unsure: number;
}

export interface Ages {
  queue: number;
  sampling: number;
  tools: number;
  waiting: number;
}

export interface Alarm {
  level: string;
  title: string;
  what: string;
  do: string;
  link?: string;
}

export interface Bar {
  fate: string;
  reason: string;
  label: string;
  count: number;
  left: number;
  sum: boolean;
  what: string;
}

export interface Bias {
  came: number;
  trained: number;
  of: BiasMetric[];
  sources: BiasSource[];
  tasks: BiasSource[];
  causes: BiasCause[];
  issued: SourceIssued[];
  starved: string[];
  alarm: string;
}

export interface BiasCause {
  reason: string;
  came: number;
  length: number;
  duration: number;
  turns: number;
  reward: number;
}

export interface BiasMetric {
  name: string;
  unit: string;
  quantiles: number[];
  came: number[];
  trained: number[];
  ks: number;
  p: number;
  differs: boolean;
}

export interface BiasSource {
  name: string;
  came: number;
  trained: number;
  flat: number;
  late: number;
  else: number;
  reward: number;
  differs: string;
  ks: number;
  p: number;
}

export interface Build {
  version: string;
  commit: string;
}

export interface Call {
  tool: string;
  arguments: string;
  seconds: number;
  error?: string;
}

export interface Change {
  step: number;
  key: string;
  before: string;
  after: string;
}

export interface ChatEnd {
  notes: string[];
  answer: string;
  stop: string;
  error?: string;
  oldest_version: number;
  newest_version: number;
  sampled: number;
  seconds: number;
  command?: string;
}

export interface ChatLine {
  move?: ChatMove;
  end?: ChatEnd;
  error?: string;
}

export interface ChatMove {
  kind: string;
  agent?: string;
  segment: number;
  text: string;
  tool?: string;
  call: number;
  seconds: number;
  failed?: boolean;
}

export interface ChatOffer {
  versions: ChatVersion[];
  notes: string[];
  tasks: ChatTask[];
  agents: string[];
  tools: string[];
}

export interface ChatTask {
  name: string;
  agent: string;
  tools: string[];
  examples: string[];
}

export interface ChatVersion {
  key: string;
  name: string;
  cost: string;
}

export interface Command {
  what: string;
  line: string;
}

export interface Configuration {
  build: Build;
  settings: Setting[];
}

export interface ControlNow {
  paused: boolean;
  draining: boolean;
  policy_version: number;
  min_version: number;
  eta: number;
  depth: number;
  limits: LimitNow[];
}

export interface Detail {
  id: string;
  group: string;
  entries: Listed[];
  words: string;
  missing?: string;
  trajectory?: Rollout;
  facts?: Facts;
  commands: Command[];
}

export interface Distributions {
  step: number[];
  at: number[];
  sampled: number[][];
  seconds: number[][];
  staleness: number[][];
  solved: number[];
  unsolved: number[];
  mixed: number[];
}

export interface EventNow {
  at: string;
  type: string;
  role: string;
  worker: string;
  step: number;
  policy_version: number;
  message: string;
}

export interface Facts {
  task?: string;
  source?: string;
  prompt?: string;
  question?: string;
  accepted?: string;
  producer?: string;
  stop?: string;
  answer?: string;
  detail?: string;
  tokens: number;
  sampled: number;
  turns: number;
  seconds: number;
  reward: number;
}

export interface Failure {
  task: string;
  failed: number;
  succeeded: number;
  by_cause: Record<string, number>;
  late: number;
  overdue: number;
  limited: number;
  ended: number;
  last: string;
  at: string;
}

export interface GroupMember {
  id: string;
  fate: string;
  reward: number | null;
  answer: string;
}

export interface GroupPage {
  total: number;
  offset: number;
  rows: GroupRow[];
  generation: number;
  top: number;
}

export interface GroupRow {
  id: string;
  step: number;
  fate: string;
  reason?: string;
  facts?: Facts;
  members: GroupMember[];
  kind: string;
  mean: number;
}

export interface LaneBar {
  id: string;
  lane: number;
  fate: string;
  issued: number;
  started: number;
  finished: number;
  ended: number;
  spans: number[];
}

export interface LaneProducer {
  name: string;
  lanes: number;
  busy: number;
}

export interface Lanes {
  from: number;
  to: number;
  first: number;
  last: number;
  producers: LaneProducer[];
  bars: LaneBar[];
  swaps: Swap[];
  more: boolean;
  ages: Ages;
}

export interface LimitNow {
  task: string;
  key: string;
  value: string;
}

export interface Listed {
  id: string;
  group: string;
  fate: string;
  reason?: string;
  step: number;
  reward: number;
  rewarded: boolean;
  oldest: number;
  newest: number;
  sequence: number;
  facts?: Facts;
}

export interface Log {
  lines: LogLine[];
}

export interface LogLine {
  at: string;
  level: string;
  text: string;
  rest: string;
  count: number;
}

export interface Move {
  segment: number;
  start: number;
  end: number;
  reward: number;
  calls: Call[];
}

export interface Overview {
  summary: Summary;
  alarms: Alarm[];
  failures: Failure[];
  last: Record<string, number>;
  score: Record<string, number>;
  limits: string;
  changed: Change[];
  unread: number;
}

export interface Page {
  total: number;
  offset: number;
  rows: Listed[];
  generation: number;
}

export interface Picked {
  step: number;
  best: Detail | null;
  worst: Detail | null;
  newest: Detail | null;
}

export interface ProducerRefusals {
  producer: string;
  messages: number;
  reasons: Record<string, number>;
  first: string;
  last: string;
}

export interface Rollout {
  task: string;
  prompt_id: string;
  source: string;
  producer: string;
  sample: number;
  group_size: number;
  cursor: number;
  attempt: number;
  reward: number;
  rewards: Record<string, number>;
  answer: string;
  stop: string;
  error?: string;
  started_at: string;
  finished_at: string;
  turns: Move[];
  segments: Tokens[];
}

export interface Series {
  x: number[];
  y: number[];
  at: number[];
}

export interface Setting {
  key: string;
  value: string;
}

export interface SourceIssued {
  name: string;
  issued: number;
  underway: number;
  lost: number;
  refused: number;
  late: number;
  dropped: number;
  flat: number;
  others: number;
  trained: number;
  share: number;
  trained_share: number;
  ratio: number;
  starves: boolean;
}

export interface StreamNow {
  name: string;
  messages: number;
  bytes: number;
  max_messages: number;
  max_bytes: number;
  first: number;
  last: number;
  age: number;
}

export interface Streams {
  down?: string;
  at: string;
  streams: StreamNow[];
  tickets?: TicketsNow;
  control?: ControlNow;
  tasks?: string[];
  newest_version?: number;
  workers: Worker[];
  events: EventNow[];
  acts: EventNow[];
  event_counts: Record<string, number>;
  failures: Failure[];
  refused: ProducerRefusals[];
}

export interface Summary {
  name: string;
  folder: string;
  state: string;
  detail: string;
  up: boolean;
  step: number;
  steps: number;
  reward: number | null;
  score: number | null;
  scored: number;
  at: string | null;
  alarms: number;
  verdict: Verdict;
}

export interface Swap {
  version: number;
  at: number;
}

export interface TicketsNow {
  waiting: number;
  leased: number;
  takers: number;
  redelivered: number;
}

export interface Tokens {
  agent?: string;
  temperature: number;
  ids: number[];
  text: string[];
  mask: number[];
  versions: number[];
  logprobs: number[];
  advantages?: number[];
  start?: number[];
  last?: number[];
}

export interface Verdict {
  kind: string;
  text: string;
}

export interface Worker {
  role: string;
  name: string;
  state: string;
  since: string;
  heard: string;
  events: number;
  version?: number;
  lag?: number;
}
