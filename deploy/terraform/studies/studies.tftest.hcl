run "kesque_2019" {
  command = plan
  variables { study = "kesque-2019" }
  assert {
    condition     = length(output.all) == 10 && output.all["broker-3"].type == "i3.4xlarge" && output.all["load-4"].type == "c5.2xlarge"
    error_message = "Expected three brokers, three for ZooKeeper and four load machines of the study's types."
  }
}

run "streamnative_2022" {
  command = plan
  variables { study = "streamnative-2022" }
  assert {
    condition     = output.all["broker-1"].type == "i3en.6xlarge" && output.all["load-1"].type == "m5n.8xlarge" && output.all["zookeeper-2"].node == 2
    error_message = "Expected the study's types."
  }
}

run "unknown" {
  command = plan
  variables { study = "nobody-1999" }
  expect_failures = [var.study]
}
