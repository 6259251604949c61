package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"image/png"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"mcpbridge/clients/provider/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connected runs the fixtures in a bubble and returns the bridge's end.
func connected(t *testing.T) *providertest.Peer {
	t.Helper()
	bridge := providertest.New(t)
	f, err := newProvider(bridge.Config())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	peer := bridge.Accept()
	if _, tools := peer.Greet(); len(tools.Tools) != 34 {
		t.Errorf("%d tools", len(tools.Tools))
	}
	return peer
}

func TestFixturesAnswerAsTheSuiteDescribesThem(t *testing.T) {
	for tool, want := range map[string]string{
		"test_simple_text":            `{"content":[{"type":"text","text":"This is a simple text response for testing."}]}`,
		"test_embedded_resource":      `{"content":[{"type":"resource","resource":{"uri":"test://embedded-resource","mimeType":"text/plain","text":"This is an embedded resource content."}}]}`,
		"test_error_handling":         `{"content":[{"type":"text","text":"This tool intentionally returns an error for testing"}],"isError":true}`,
		"test_multiple_content_types": `"text":"{\"test\":\"data\",\"value\":123}"`,
		"test_mirrored_argument":      `{"content":[{"type":"text","text":"{}"}]}`,
		"test_reconnection":           `{"content":[{"type":"text","text":"Answered late."}]}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			if answer, _ := connected(t).Call(tool, ""); !strings.Contains(string(answer.Result), want) {
				t.Errorf("%s = %s\nwant %s", tool, answer.Raw, want)
			}
		})
	}
}

func TestProgressAndLogsAreSpacedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer := connected(t)
		from := time.Now()
		_, steps := peer.Call("test_tool_with_progress", "{}")
		for i, want := range []float64{0, 50, 100} {
			if len(steps) != 3 || steps[i].Type != "progress" || steps[i].Progress != want || steps[i].Total != 100 {
				t.Fatalf("progress = %+v", steps)
			}
		}
		_, logs := peer.Call("test_tool_with_logging", "{}")
		for i, want := range []string{"started", "processing", "completed"} {
			if len(logs) != 3 || logs[i].Level != "info" || !strings.Contains(string(logs[i].Data), want) {
				t.Fatalf("logs = %+v", logs)
			}
		}
		if took := time.Since(from); took != 4*pause {
			t.Errorf("took %v", took)
		}
	})
}

func TestToolChangeHappensDuringTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer := connected(t)
		for _, want := range []int{35, 34, 35} {
			peer.Send(`{"type":"callTool","callId":"1","name":"test_trigger_tool_change"}`)
			set := peer.Expect("registerTools")
			if len(set.Tools) != want {
				t.Errorf("%d tools, want %d", len(set.Tools), want)
			}
			peer.Send(`{"type":"registered","id":"` + set.ID + `","revision":2,"tools":[],"rejected":[]}`)
			peer.Expect("toolResult")
		}
	})
}

func TestMediaAreReal(t *testing.T) {
	if img, err := png.Decode(bytes.NewReader(redPixel())); err != nil || img.Bounds().Dx() != 1 {
		t.Errorf("image: %v", err)
	}
	wav := tone()
	if len(wav) != 44+1600 || string(wav[:4]) != "RIFF" || string(wav[8:16]) != "WAVEfmt " || string(wav[36:40]) != "data" {
		t.Errorf("audio: %d bytes, %q", len(wav), wav[:44])
	}
	synctest.Test(t, func(t *testing.T) {
		peer := connected(t)
		for tool, want := range map[string][]byte{"test_image_content": redPixel(), "test_audio_content": wav} {
			answer, _ := peer.Call(tool, "{}")
			var result struct{ Content []struct{ Data string } }
			if err := json.Unmarshal(answer.Result, &result); err != nil || len(result.Content) != 1 {
				t.Fatalf("%s = %s", tool, answer.Raw)
			}
			if data, err := base64.StdEncoding.DecodeString(result.Content[0].Data); err != nil || !bytes.Equal(data, want) {
				t.Errorf("%s: %v", tool, err)
			}
		}
	})
}
