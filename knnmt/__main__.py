from knnmt.cli.main import main

main()
