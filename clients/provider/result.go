package provider

import (
	"encoding/base64"
	"encoding/json"
	"errors"
)

// Result is what a tool answers. The zero value is an empty result.
type Result struct {
	// Content holds content blocks as MCP defines them: see [TextContent] and
	// its like, or any other block as raw JSON.
	Content []json.RawMessage
	// Structured is the structuredContent member, one JSON value; nil sends none.
	Structured json.RawMessage
	// IsError tells the model that the tool failed, and that Content says why.
	IsError bool
	// Meta is the _meta member, a JSON object; nil sends none.
	Meta json.RawMessage
	// Raw, if set, is the whole result, a JSON object sent byte for byte; the
	// other fields are ignored.
	Raw json.RawMessage
}

// Text is a result of one text block.
func Text(text string) Result { return Blocks(TextContent(text)) }

// Image is a result of one image block. mimeType is like "image/png".
func Image(mimeType string, data []byte) Result { return Blocks(ImageContent(mimeType, data)) }

// Failure is a result that tells the model that the tool failed and why.
func Failure(text string) Result {
	return Result{Content: []json.RawMessage{TextContent(text)}, IsError: true}
}

// Blocks is a result of content blocks.
func Blocks(content ...json.RawMessage) Result { return Result{Content: content} }

// Structured is a result whose structuredContent is v as JSON, and whose text
// is the same JSON for clients that do not know structured content.
func Structured(v any) (Result, error) {
	raw, err := encode(v)
	if err != nil {
		return Result{}, err
	}
	return Result{Content: []json.RawMessage{TextContent(string(raw))}, Structured: raw}, nil
}

// TextContent is a text block.
func TextContent(text string) json.RawMessage {
	var o object
	o.text("type", "text")
	o.text("text", text)
	return o.end()
}

// ImageContent is an image block.
func ImageContent(mimeType string, data []byte) json.RawMessage {
	return binary("image", mimeType, data)
}

// AudioContent is an audio block. mimeType is like "audio/wav".
func AudioContent(mimeType string, data []byte) json.RawMessage {
	return binary("audio", mimeType, data)
}

func binary(kind, mimeType string, data []byte) json.RawMessage {
	text := make([]byte, 1, base64.StdEncoding.EncodedLen(len(data))+2)
	text[0] = '"'
	text = append(base64.StdEncoding.AppendEncode(text, data), '"')
	var o object
	o.text("type", kind)
	o.raw("data", text)
	o.text("mimeType", mimeType)
	return o.end()
}

// ResourceContent is an embedded text resource.
func ResourceContent(uri, mimeType, text string) json.RawMessage {
	var r object
	r.text("uri", uri)
	r.optional("mimeType", mimeType)
	r.text("text", text)
	var o object
	o.text("type", "resource")
	o.raw("resource", r.end())
	return o.end()
}

// encode is the result as JSON, or an error where raw JSON in it is invalid.
func (r Result) encode() (json.RawMessage, error) {
	if r.Raw != nil {
		if !isObject(r.Raw) {
			return nil, errors.New("provider: Result.Raw is not a JSON object")
		}
		return r.Raw, nil
	}
	for _, c := range r.Content {
		if !isObject(c) {
			return nil, errors.New("provider: a content block is not a JSON object")
		}
	}
	var o object
	o.raw("content", array(r.Content))
	if r.Structured != nil {
		if !json.Valid(r.Structured) {
			return nil, errors.New("provider: Result.Structured is not valid JSON")
		}
		o.raw("structuredContent", r.Structured)
	}
	if r.IsError {
		o.raw("isError", []byte("true"))
	}
	if r.Meta != nil {
		if !isObject(r.Meta) {
			return nil, errors.New("provider: Result.Meta is not a JSON object")
		}
		o.raw("_meta", r.Meta)
	}
	return o.end(), nil
}
