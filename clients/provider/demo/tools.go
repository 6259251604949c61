package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"math/big"
	"strconv"
	"time"

	"mcpbridge/clients/provider"
)

// Tools is the demo's set. The counter lives in the file at counterPath, which
// need not exist yet: its value as decimal digits and a newline. Only one
// process may use it at a time.
func Tools(counterPath string) []provider.Tool {
	c := &counter{path: counterPath}
	return []provider.Tool{
		{
			Name:        "echo",
			Title:       "Echo",
			Description: "Returns the text it is given.",
			InputSchema: schema(`"text":{"type":"string","description":"What to return."}`, "text"),
			Annotations: pure(),
			Handle:      echo,
		},
		{
			Name:         "add",
			Title:        "Add",
			Description:  "Adds two numbers. Whole numbers of any size are added exactly.",
			InputSchema:  schema(`"a":{"type":"number","description":"The first summand."},"b":{"type":"number","description":"The second summand."}`, "a", "b"),
			OutputSchema: schema(`"sum":{"type":"number","description":"a + b"}`, "sum"),
			Annotations:  pure(),
			Handle:       add,
		},
		{
			Name:         "get_counter",
			Title:        "Counter",
			Description:  "Adds to a counter that survives restarts, and returns its new value. Add 0 to read it.",
			InputSchema:  schema(`"by":{"type":"integer","default":1,"description":"How much to add; may be negative."}`),
			OutputSchema: schema(`"value":{"type":"integer","description":"The counter's new value."}`, "value"),
			Annotations:  &provider.Annotations{ReadOnly: new(false), Destructive: new(false), Idempotent: new(false), OpenWorld: new(false)},
			Handle:       c.call,
		},
		{
			Name:        "slow",
			Title:       "Slow job",
			Description: "Takes its time, reports progress each second, and can be cancelled.",
			InputSchema: schema(`"seconds":{"type":"number","default":5,"minimum":0,"maximum":3600,"description":"How long to take."}`),
			Annotations: pure(),
			Handle:      slow,
		},
		{
			Name:        "picture",
			Title:       "Picture",
			Description: "Draws a small colourful picture and returns it as a PNG image.",
			InputSchema: schema(``),
			Annotations: pure(),
			Handle:      picture,
		},
	}
}

// schema is the JSON Schema 2020-12 of an object of these properties.
func schema(properties string, required ...string) json.RawMessage {
	names := ""
	if len(required) > 0 {
		b, err := json.Marshal(required)
		if err != nil {
			panic(err) // strings
		}
		names = `,"required":` + string(b)
	}
	return json.RawMessage(`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{` +
		properties + `}` + names + `,"additionalProperties":false}`)
}

// pure marks a tool that changes nothing and looks at nothing outside.
func pure() *provider.Annotations {
	return &provider.Annotations{ReadOnly: new(true), Destructive: new(false), Idempotent: new(true), OpenWorld: new(false)}
}

func echo(_ context.Context, call *provider.Call) (provider.Result, error) {
	var in struct{ Text string }
	if err := call.Bind(&in); err != nil {
		return provider.Result{}, err
	}
	return provider.Text(in.Text), nil
}

func add(_ context.Context, call *provider.Call) (provider.Result, error) {
	var in struct{ A, B json.Number }
	if err := call.Bind(&in); err != nil {
		return provider.Result{}, err
	}
	sum, err := plus(in.A, in.B)
	if err != nil {
		return provider.Result{}, err
	}
	r := provider.Text(sum)
	r.Structured = json.RawMessage(`{"sum":` + sum + `}`)
	return r, nil
}

// plus adds two JSON numbers: exactly where both are written as integers, as
// binary64 otherwise.
func plus(a, b json.Number) (string, error) {
	if x, ok := new(big.Int).SetString(a.String(), 10); ok {
		if y, ok := new(big.Int).SetString(b.String(), 10); ok {
			return x.Add(x, y).String(), nil
		}
	}
	x, err := a.Float64()
	if err != nil {
		return "", errors.New(`"a" is not a number that can be added`)
	}
	y, err := b.Float64()
	if err != nil {
		return "", errors.New(`"b" is not a number that can be added`)
	}
	if sum := x + y; !math.IsInf(sum, 0) {
		return strconv.FormatFloat(sum, 'g', -1, 64), nil
	}
	return "", errors.New("the sum is too large")
}

// slow sleeps in steps of a second.
func slow(ctx context.Context, call *provider.Call) (provider.Result, error) {
	in := struct{ Seconds float64 }{Seconds: 5}
	if err := call.Bind(&in); err != nil {
		return provider.Result{}, err
	}
	if in.Seconds < 0 || in.Seconds > 3600 {
		return provider.Result{}, errors.New(`"seconds" must be 0 to 3600`)
	}
	for done := 0.0; done < in.Seconds; {
		step := min(1, in.Seconds-done)
		select {
		case <-time.After(time.Duration(step * float64(time.Second))):
		case <-ctx.Done():
			return provider.Result{}, fmt.Errorf("stopped after %g of %g seconds: %w", done, in.Seconds, context.Cause(ctx))
		}
		done += step
		call.Progress(done, in.Seconds, fmt.Sprintf("%g of %g seconds", done, in.Seconds))
	}
	return provider.Text(fmt.Sprintf("Done after %g seconds.", in.Seconds)), nil
}

// pictureSize is the width and height of the picture, in pixels.
const pictureSize = 96

func picture(context.Context, *provider.Call) (provider.Result, error) {
	img := image.NewRGBA(image.Rect(0, 0, pictureSize, pictureSize))
	for y := range pictureSize {
		for x := range pictureSize {
			c := color.RGBA{R: uint8(x * 255 / pictureSize), G: uint8(y * 255 / pictureSize), B: 160, A: 255}
			// A disc in the middle, lighter than what is around it.
			if dx, dy := x-pictureSize/2, y-pictureSize/2; dx*dx+dy*dy < pictureSize*pictureSize/9 {
				c.R, c.G, c.B = 255-c.R/3, 255-c.G/3, 210
			}
			img.SetRGBA(x, y, c)
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		return provider.Result{}, err
	}
	return provider.Image("image/png", b.Bytes()), nil
}
