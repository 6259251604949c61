package provider_test

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"os/signal"

	"mcpbridge/clients/provider"
)

func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := provider.Run(ctx, provider.Config{
		URL:      "wss://bridge.example/b/ID/provider",
		Token:    os.Getenv("PROVIDER_TOKEN"),
		Provider: "weather",
		Tools: []provider.Tool{{
			Name:        "forecast",
			Description: "Tomorrow's weather in a city.",
			InputSchema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`),
			Handle: func(_ context.Context, call *provider.Call) (provider.Result, error) {
				var in struct{ City string }
				if err := call.Bind(&in); err != nil {
					return provider.Result{}, err
				}
				call.Progress(1, 2, "looking out of the window")
				return provider.Text("Sunny in " + in.City), nil
			},
		}},
	})
	if err != nil {
		log.Print(err)
	}
}
