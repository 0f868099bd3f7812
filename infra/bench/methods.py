"""How each benchmark measures: the texts of ``mnemolog bench NAME --help``."""

ANSWER = (
    "One stack of its own (all roles). The asking owner has HISTORY turns with made-up recorded vectors. A second "
    "process is a bare Kafka echo (aiokafka, no parsing) that the same Client asks under another prefix. Echo, recall "
    "and assemble are asked in turn, one at a time, SAMPLES times each, with a new question (Chinese, English) each "
    "time: idle, then while a third process posts RATE turns/s of 50 other owners. `embed` is the query's embedding "
    "as the reply times it. Spread: p50 of REPEATS consecutive parts. Overhead: median of (answer - its embedding - "
    "the echo just before)."
)
INTAKE = (
    "A broker of its own. For each of REPEATS repeats a fresh topic prefix gets TURNS turns of 100 owners in `turns` "
    "first; then one ingest worker (the role as deployed, in its process) is started and its rate is taken from the "
    "broker's record times in `journal`, from the first to the last record, so that start-up and group join do not "
    "count. Then the same `turns` go through ingest's code in an aiokafka loop without Faust, a bare aiokafka loop "
    "(no parsing either) and a bare confluent loop (librdkafka), each in a process of its own, timed from the first "
    "record read to the last acknowledged. All with acks=all and up to 2,000 records in flight. turns/CPU-s: by the "
    "CPU time of the process (of the worker from its first record on), which a busy machine doesn't lengthen."
)
FOLD = (
    "A made-up history (TURNS turns of OWNERS owners, each with a recorded int8 vector of 384 dimensions: two events "
    "a turn, half Chinese, half English) is in one partition of `journal`. Per repeat, in one process, one after the "
    "other: librdkafka consume alone; consume + orjson.loads of each value (the bare reader); LogFollower + decode + "
    "JournalState, as the memory worker folds; the same from records in memory, without Kafka; and its parts, decode "
    "and apply. events/s is by the wall clock, events/CPU-s by the process's CPU time (all threads)."
)
RECOVER = (
    "The same history; `fold` is the time of one LogFollower + JournalState from offset 0 to the end of the log; "
    "`worker ready` starts the memory role as a process on a stack of its own (broker, embedder) and takes the time "
    "until its ready file stands, imports, embedder and group join included: with an empty journal; with the history; "
    "and once more in the same data directory, where the first left a snapshot (real Kafka only)."
)
RESTORE = (
    "A made-up history (TURNS turns of OWNERS owners in 4 partitions, each with a recorded int8 vector: two events a "
    "turn) goes through the archiver into a local directory (`archive`, timed with flushing to the disk), is checked "
    "(`check`: all digests, as before a restore), and is written into fresh topics of a broker of its own (`restore`, "
    "which includes a check, making the topics and the last acknowledgement). Beside it a bare librdkafka producer "
    "writes the same values without times, headers or offsets to compare. `transcript`: one session found and read, "
    "per lookup. events/CPU-s: of this process."
)
ARCHIVE = (
    "A stack of its own. TURNS turns are posted first, then ingest (the role as deployed) takes them while an "
    "analytics worker runs beside it: without an object store (`alone`), and with one (`archiving`), in turn, REPEATS "
    "times each, under a fresh prefix each time. turns/s of ingest by the broker's record times in `journal`."
)
EMBED = (
    "A stack of its own, the endpoint as the roles use it. Short utterances in Chinese and English (written, about a "
    "dozen words). `passages`: batches of 16, one after the other, for SECONDS. `query alone`: one at a time. `query "
    "beside passages`: the same while batches run without pause. `posted to recallable`: turns posted at RATE a "
    "second (by default half of the passages/s just measured), each followed by a recall with `after`, which is "
    "answered once the turn is folded and its vector recorded: from the post to the reply. Spread: of three "
    "consecutive parts."
)
MEMORY = (
    "For each SIZE a process of its own folds that many turns of one owner (text of about 14 words and a recorded "
    "vector of 384 int8) from encoded events, and reports the growth of its resident memory a turn, events/s of the "
    "fold alone (decoding left out), and p50/p99 of the CPU time of 100 recalls without embedding (only this owner's "
    "turns, no documents). Another process does the same for the chunks of documents (children of about 25 words with "
    "vectors). The bytes of the vector (384) and of the text are beside it: what is left is ours."
)
RECALL = (
    "LoCoMo files (JSON, plain or gzip). Each conversation is an owner of its own, folded into JournalState turn by "
    "turn with real recorded embeddings, and asked through the pure core (the code behind a reply) at now = one day "
    "after its last session, 20 turns of evidence. Categories 1-4; questions whose evidence names no turn are left "
    "out, as are evidence ids that don't exist. All presets and ablations; then over bare turns BM25+, vectors and "
    "plain RRF (k 60) of both, and mem0 (extra `bench`; infer=False, the same embedder, FAISS, no network). recall@k: "
    "share of a question's evidence among the first k, mean over questions; hit@k: any of it. Embeddings are kept "
    "under the cache directory, so only the first run is slow. With --split each conversation has its own figures."
)
CORRECTIONS = (
    "CASES generated cases a language (Chinese, English) from written templates: a fact is stated, then corrected one "
    "to three times, 1 to 120 days apart, in varied wordings, with 6 to 40 turns of small talk around each statement. "
    "Each case is an owner of its own, asked through the pure core with real embeddings. Now (a day after the last "
    "turn): `newest first`: the newest statement is among the ten and above every older one; `newest found`: it is "
    "among the ten. Then as of a minute before each correction: `past found`: the statement that held is among the "
    "ten; `past first`: it is above the ones before it; `leaks`: statements of the future in an answer about the "
    "past."
)
NOISE = (
    "50 question rounds, 25 facts said in dialogue (among small talk, over 25 days) and 25 in documents, half "
    "Chinese, half English, written for this benchmark. Noise is text of the files given (txt, txt.xz): at each RATIO "
    "that many characters for one planted; nine tenths as documents, one tenth said in the dialogue, paragraph by "
    "paragraph, up to --noise-turns turns. Each question is assembled through the pure core (default limits and token "
    "budget); it counts when the words that answer it stand in the prompt. BM25+ covers all of the noise. Embedding "
    "covers everything planted but of the noise only an even sample of --embed-max passages, since a CPU embeds tens "
    "a second; the rest can't be found by vectors, so figures that rest on vectors alone are upper bounds."
)
LATENCY = (
    "Synthetic memory: TURNS turns of one owner and CHUNKS children of documents, made-up texts of a Zipf vocabulary "
    "(half Chinese, half English) and clustered int8 vectors of 384 dimensions. QUERIES questions of about eight "
    "words, each with a vector, go through the code behind a reply, recall and assemble in turn, without Kafka and "
    "without embedding the question; the collector of garbage runs as it does in a worker. Then the engines alone "
    "over the same turns and children: our int8 vectors beside FAISS flat on float32 and beside reading the same "
    "bytes once (np.sum: the limit of memory), our BM25+ with and without its window beside bm25s (extra `bench`), "
    "the 100 best of each. Spread: p50 of three consecutive parts. One thread; CPU: of this thread, which other "
    "programs on the machine don't lengthen."
)
ENGINES = (
    "Words: SIZE made-up chunks of about 25 words (Zipf vocabulary, half Chinese, half English), cut into terms once; "
    "our BM25+, bm25s (extra `bench`) and Lucene (`make lucene`) index the same terms and answer the same QUERIES, "
    "each made of four terms of one chunk and two of another: recall@k is the share of questions whose chunk is among "
    "the first k. Lucene is asked through pyserini in this process, with the crossing into the JVM. Vectors: SIZE "
    "made-up int8 vectors of 384 dimensions with the spectrum of recorded e5 vectors, and queries at a cosine of 0.7 "
    "to one of them: our exhaustive index, FAISS HNSW and IVF over int8, now and as of the first half; recall@10 is "
    "the share of the exact ten nearest that is among the ten found. The 100 best of each, one query at a time, one "
    "thread; building takes all cores. MB: growth of resident memory, of Lucene the files. Spread: p50 of three "
    "consecutive parts."
)
EXTRACT = (
    "The rules that find facts, in one process and one thread, without Kafka and embedder: COUNT turns a language of "
    "the generated cases of `bench corrections` (facts among small talk), a quarter as many turns that hold nothing "
    "but facts, a pasted text of 100,000 characters, and the turns of LoCoMo files where they are given. turns/CPU-s: "
    "by the CPU time of the process, over REPEATS repeats. Precision and recall are tested (tests/core/facts), not "
    "measured here."
)
PROTOCOL = (
    "In one process, no stack. COUNT broken outputs are made by seeded mutations (cut, doubled, swapped, pieces of "
    "tags strewn in, up to 6 a text) of eight answers; each is parsed whole and streamed in random pieces, which must "
    "give the same. The labelled failures (tests/core/protocol/failures.jsonl, or a FILE of that form) are written and "
    "labelled by hand, not recorded from models; the parser was improved with them. Times are CPU times of this "
    "process; growth is the time of 80,000 characters over that of 20,000, divided by 4, worst of ten pieces repeated, "
    "bare and inside a response."
)
PROXY = (
    "A stack, the scripted endpoint and `mnemolog proxy`, each a process of its own; HISTORY turns of one owner, "
    "natural sentences. SAMPLES rounds, each first by hand (post the turn, assemble with `after`, ask the endpoint, "
    "streamed), then through the proxy, streamed, with another question of the same session. `added` is the time to "
    "the proxy's first token less what its own assemble took (the header Server-Timing) less the endpoint's first "
    "token of a response as it came by hand in the same round; the turn's acknowledgement counts as added, and is "
    "shown. Spread: p50 of three consecutive parts."
)
