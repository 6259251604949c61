package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpbridge/api/reveal"
	"mcpbridge/api/schema"
	"mcpbridge/api/shape"
	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// toolError says why a tool is refused, with a stable word.
type toolError struct {
	code    string
	message string
}

func (e *toolError) Error() string { return e.message }

// longName is the length from which some clients hide a tool (they count the
// server's name in), in bytes.
const longName = 48

// readTool checks one element of registerTools and makes a Tool of it, with what
// its provider should know. The Tool has memory of its own. The name is returned
// also with an error, where there is one.
func readTool(raw json.RawMessage, l session.Limits) (t session.Tool, warnings []string, err error) {
	if raw[0] != '{' {
		return t, nil, &toolError{"bad_tool", "a tool must be an object"}
	}
	if len(raw) > l.ToolBytes {
		t.Name = toolName(raw)
		return t, nil, &toolError{"too_large", fmt.Sprintf("the definition has %d bytes; at most %d are taken", len(raw), l.ToolBytes)}
	}
	raw = bytes.Clone(raw)
	var cut [2]int // where timeoutSeconds stands, with the comma that goes with it
	var input, output, timeout, description json.RawMessage
	var last int // where the last member ended
	s := wire.Reread(raw)
	known := wire.NewMembers("name", "inputSchema", "outputSchema", "timeoutSeconds", "description")
	err = s.Object(func(name []byte) error {
		i, err := known.Check(name)
		if err != nil {
			return &toolError{"bad_tool", err.Error()}
		}
		v, err := s.Raw()
		if err != nil {
			return err
		}
		switch i {
		case 0:
			t.NameAt, t.NameEnd = s.Offset()-len(v), s.Offset()
			t.Name, _ = wire.Text(v)
		case 1:
			input = v
		case 2:
			output = v
		case 3:
			timeout = v
			cut = [2]int{last, s.Offset()}
		case 4:
			description = v
		}
		last = s.Offset()
		return nil
	})
	if err != nil {
		return t, nil, err
	}
	if t.Name == "" {
		return t, nil, &toolError{"bad_name", `member "name" must be a string of 1 character or more`}
	}
	if input == nil {
		warnings = append(warnings, `inputSchema is missing; {"type":"object"} was added`)
		raw = append(raw[:last:last], append([]byte(`,"inputSchema":{"type":"object"}`), raw[last:]...)...)
	} else if err := checkSchema("inputSchema", input, l, true); err != nil {
		return t, nil, err
	} else {
		warnings = append(warnings, shape.Warnings(input)...)
	}
	if output != nil && string(output) != "null" {
		if err := checkSchema("outputSchema", output, l, false); err != nil {
			return t, nil, err
		}
	}
	if bytes.Contains(input, []byte("x-mcp-header")) {
		if err := mcp.ValidateParamHeaderAnnotations(&mcp.Tool{Name: t.Name, RawInputSchema: input}); err != nil {
			return t, nil, &toolError{"bad_header", err.Error()}
		}
		t.Headers = true
	}
	if timeout != nil {
		seconds, err := strconv.ParseFloat(string(timeout), 64)
		if err != nil || seconds <= 0 || seconds > l.CallTimeoutMax.Seconds() {
			return t, nil, &toolError{"bad_timeout", fmt.Sprintf("timeoutSeconds must be a number above 0 and at most %g", l.CallTimeoutMax.Seconds())}
		}
		t.Timeout = time.Duration(seconds * float64(time.Second))
		raw = cutMember(&t, raw, cut)
	}
	t.Definition = raw
	warnings = append(warnings, nameWarnings(t.Name, description)...)
	return t, append(warnings, reveal.Warnings("the definition has", raw)...), nil
}

// cutMember takes the member that ends at cut[1], and follows what ends at
// cut[0], out of a definition.
func cutMember(t *session.Tool, raw []byte, cut [2]int) []byte {
	from, to := cut[0], cut[1]
	if from == 0 { // the first member: its comma follows it
		from = bytes.IndexByte(raw, '{') + 1
		if rest := bytes.TrimLeft(raw[to:], " \t\r\n"); rest[0] == ',' {
			to = len(raw) - len(rest) + 1
		}
	}
	if t.NameAt >= to {
		t.NameAt -= to - from
		t.NameEnd -= to - from
	}
	return append(raw[:from:from], raw[to:]...)
}

// toolName finds the name of a definition that is otherwise not read.
func toolName(raw []byte) (name string) {
	s := wire.Reread(raw)
	_ = s.Object(func(member []byte) error { // what has been checked has no errors
		v, err := s.Raw()
		if string(member) == "name" {
			name, _ = wire.Text(v)
		}
		return err
	})
	return name
}

// checkSchema checks what must hold of any schema before clients may see it: it
// is an object, not nested too deeply, and the input's describes an object (MCP
// 2026-07-28 schema.ts, Tool.inputSchema).
func checkSchema(member string, raw []byte, l session.Limits, input bool) error {
	if raw[0] != '{' {
		return &toolError{"bad_schema", member + " must be a JSON object"}
	}
	s, err := wire.NewScanner(raw, l.SchemaDepth)
	if err != nil {
		return err
	}
	var kind json.RawMessage
	err = s.Object(func(name []byte) error {
		v, err := s.Raw()
		if string(name) == "type" {
			kind = v
		}
		return err
	})
	if deep, ok := errors.AsType[*wire.DepthError](err); ok {
		return &toolError{"too_deep", fmt.Sprintf("%s is nested too deeply: at most %d levels", member, deep.Max)}
	}
	if err != nil {
		return err
	}
	if input && kind != nil && string(kind) != `"object"` {
		return &toolError{"bad_schema", fmt.Sprintf(`%s must have "type":"object" at its root, not %.40s`, member, kind)}
	}
	if _, err := schema.Compile(raw); err != nil && !errors.Is(err, schema.ErrUnsupported) {
		return &toolError{"bad_schema", fmt.Sprintf("%s is not a JSON Schema: %v", member, err)}
	}
	return nil
}

func nameWarnings(name string, description json.RawMessage) (warnings []string) {
	if safe := session.SafeName(name); safe != name {
		warnings = append(warnings, fmt.Sprintf("the name has characters outside [A-Za-z0-9_.-] or more than %d bytes; clients see %q", session.MaxToolName, safe))
	} else if len(name) > longName {
		warnings = append(warnings, fmt.Sprintf("the name has more than %d bytes; some clients hide such tools", longName))
	}
	if text, _ := wire.Text(description); strings.TrimSpace(text) == "" {
		warnings = append(warnings, "the description is missing; models choose tools by it")
	}
	return warnings
}
