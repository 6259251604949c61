package e2e

import (
	"slices"
	"testing"
)

// everything uses all that server-everything offers.
var everything = []step{
	connecting,
	list("tools/list"), list("prompts/list"), list("resources/list"), list("resources/templates/list"),

	call("echo", object{"message": "Ærø <&>  \"9007199254740993\""}),
	call("get-sum", object{"a": 2, "b": 40.5}),
	call("get-env", object{}),
	call("get-tiny-image", object{}),
	call("get-annotated-message", object{"messageType": "error", "includeImage": true}),
	named("annotated for one", call("get-annotated-message", object{"messageType": "debug"})),
	call("get-structured-content", object{"location": "Chicago"}),
	call("get-resource-links", object{"count": 4}),
	call("get-resource-reference", object{"resourceType": "Text", "resourceId": 3}),
	named("a blob's reference", call("get-resource-reference", object{"resourceType": "Blob", "resourceId": 4})),
	// The TypeScript clients drop reports that they read together with the answer.
	call("trigger-long-running-operation", object{"duration": 0.8, "steps": 4}, progressTold, progressTold),
	call("gzip-file-as-resource", object{"name": "a.gz", "data": "data:text/plain,hello"}, resourcesTold),
	read("demo://resource/session/a.gz"),
	named("gzip inline", call("gzip-file-as-resource", object{"name": "b.gz", "data": "data:text/plain,hi", "outputType": "resource"}, resourcesTold)),
	named("resources then", list("resources/list")), read("demo://resource/session/b.gz"),
	call("simulate-research-query", object{"topic": "tasks"}),

	call("trigger-elicitation-request", object{}),
	call("trigger-url-elicitation", object{"url": "https://example.com/", "elicitationId": "one"}),
	named("elicitation by an error", call("trigger-url-elicitation", object{"url": "https://example.com/", "elicitationId": "two", "errorPath": true})),
	call("trigger-sampling-request", object{"prompt": "say it", "maxTokens": 10}),
	call("get-roots-list", object{}),

	prompt("simple-prompt", nil),
	prompt("args-prompt", object{"city": "Ærøskøbing", "state": "Fyn"}),
	named("args-prompt with one", prompt("args-prompt", object{"city": "Marstal"})),
	prompt("completable-prompt", object{"department": "Sales", "name": "Eve"}),
	prompt("resource-prompt", object{"resourceType": "Blob", "resourceId": "2"}),

	complete("departments", object{"type": "ref/prompt", "name": "completable-prompt"}, "department", "S", nil),
	complete("names", object{"type": "ref/prompt", "name": "completable-prompt"}, "name", "", object{"department": "Sales"}),
	complete("of a template", object{"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"}, "resourceId", "7", nil),
	complete("of another template", object{"type": "ref/resource", "uri": "demo://resource/dynamic/blob/{resourceId}"}, "resourceId", "x", nil),

	read("demo://resource/dynamic/text/1"), read("demo://resource/dynamic/blob/2"),
	read("demo://resource/static/document/architecture.md"), read("demo://resource/static/document/extension.md"),
	read("demo://resource/static/document/features.md"), read("demo://resource/static/document/how-it-works.md"),
	read("demo://resource/static/document/instructions.md"), read("demo://resource/static/document/startup.md"),
	read("demo://resource/static/document/structure.md"),

	{"subscribe", "resources/subscribe", object{"uri": "demo://resource/dynamic/text/1"}, nil},
	call("toggle-subscriber-updates", object{}, updateTold),
	named("no more updates", call("toggle-subscriber-updates", object{})),
	{"level", "logging/setLevel", object{"level": "debug"}, nil},
	call("toggle-simulated-logging", object{}, logTold),
	named("no more logging", call("toggle-simulated-logging", object{})),
	// Not earlier: for clients of 2026-07-28 the bridge unsubscribes while they go on, and
	// of a server with two requests in flight nobody knows whose a log message is.
	{"unsubscribe", "resources/unsubscribe", object{"uri": "demo://resource/dynamic/text/1"}, nil},

	// What fails.
	call("no-such-tool", object{}),
	named("bad arguments", call("get-sum", object{"a": "two"})),
	prompt("no-such-prompt", nil),
	named("bad prompt arguments", prompt("args-prompt", object{})),
	read("demo://no/such/resource"),
	read("demo://resource/dynamic/text/x"),
}

// modern are the clients of 2026-07-28 in the patterns of differences.
const modern = `^(go-sdk|typescript-sdk 2 auto) `

// everywhere are differences of every server, and ofEverything those of server-everything,
// used directly and behind mcpbridge. docs/differences.md tells people.
var (
	everywhere = []difference{
		{`/connect/result/server/`, "the client is connected with mcpbridge, which may have several servers"},
		{modern + `/connect/result/capabilities/extensions: only through`, "mcpbridge has the tasks extension of 2026-07-28"},
		{modern + `/.*/result/_meta: only through the bridge: {"io.modelcontextprotocol/serverInfo"`, "of every result of 2026-07-28"},
		{modern + `/.*/result/resultType: .*"complete"$`, "of every result of 2026-07-28"},
	}
	ofEverything = []difference{
		{`/connect/result/capabilities/tasks: only direct`, "the experimental tasks of 2025-11-25 have been replaced"},
		{modern + `/.*/result/(ttlMs: .*1000|cacheScope: .*"private")$`, "of what clients of 2026-07-28 may keep"},
		{modern + `/.*/told/0/params(/_meta)?: .*"io.modelcontextprotocol/subscriptionId"`, "of what clients of 2026-07-28 listen to"},
		{modern + `/simulate-research-query/(error: only through|result: only direct)`, "the tool needs tasks, which this client does not know"},
		{modern + `/elicitation by an error/error/code: direct -32042, through the bridge -32603$`, "2026-07-28 forbids the code"},
		{`typescript-sdk 2 auto /tools/list/result/.*/execution: only direct`, "the library drops what 2026-07-28 does not have"},
		{`typescript-sdk 2 auto /trigger-url-elicitation/asked/0/params/elicitationId: only direct`, "the library drops what 2026-07-28 does not have"},
		{`/no-such-tool/(error: only through the bridge: {"code":-32602|result: only direct: .*not found)`, "MCP wants -32602; the TypeScript SDK makes it a result"},
		{`/no-such-prompt/error/message: .*"(MCP error -32602: )?unknown prompt"$`, "mcpbridge knows the prompts, and says so itself"},
		{`/bad arguments/result/content/0/text: .*do not fit the tool's input schema: at /`, "mcpbridge checks arguments before it calls"},
	}
)

func TestEverythingIsTheSameThroughTheBridge(t *testing.T) {
	same(t, func(t *testing.T) ([]string, []step) { return installed(t, "server-everything", "stdio"), everything }, slices.Concat(everywhere, ofEverything))
}

// filesIn uses all that server-filesystem offers, in a folder that the first use leaves
// as the second finds it.
func filesIn(folder string) []step {
	at := func(name string) string { return folder + "/" + name }
	return []step{
		connecting, list("tools/list"),
		call("create_directory", object{"path": at("sub/deep")}),
		call("write_file", object{"path": at("a.txt"), "content": "Ærø\r\n\u2028<&>"}),
		call("read_file", object{"path": at("a.txt")}),
		call("read_multiple_files", object{"paths": []string{at("a.txt"), at("none")}}),
		call("get_file_info", object{"path": at("a.txt")}),
		call("move_file", object{"source": at("a.txt"), "destination": at("sub/b.txt")}),
		call("list_directory", object{"path": folder}),
		call("search_files", object{"path": folder, "pattern": "B.T"}),
		call("list_allowed_directories", object{}),
		named("outside", call("read_file", object{"path": "/etc/passwd"})),
	}
}

// TestOldServersAreTheSameThroughTheBridge: server-filesystem 0.5.1 was made with the
// TypeScript SDK 0.5 and speaks 2024-11-05.
func TestOldServersAreTheSameThroughTheBridge(t *testing.T) {
	same(t, func(t *testing.T) ([]string, []step) {
		folder := t.TempDir()
		return installed(t, "server-filesystem", folder), filesIn(folder)
	}, append([]difference{
		{`/connect/result/capabilities/(completions|logging|prompts|resources|tools/listChanged): only through`, "another server may come that has these, and lists may change"},
	}, everywhere...))
}
